"""Exchanges and bindings, and what a user has no right to."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
)
from adapters.amqp.names import PREDECLARED
from adapters.amqp.topology.declaring import (
    CONFIGURE_ROUTER,
    CONFIGURE_TOPIC,
    INSPECT_ROUTER,
    INSPECT_TOPIC,
)
from adapters.amqp.topology.router_rights import CONSUME_ROUTER, PUBLISH_ROUTER
from adapters.tree_rights import CONSUME_TOPIC, PUBLISH_TOPIC
from kernel.api.model import (
    AttributesMatch,
    Match,
    RouterOptions,
)
from tests.adapters.amqp.wire import Wire, close_of


def _refusal(wire: Wire, method: object) -> tuple[int, str]:
    """The error, after which the channel is open again."""
    refusal = close_of(wire.ask(1, method))  # type: ignore[arg-type]
    wire.send(1, spec.ChannelCloseOk(), spec.ChannelOpen())
    wire.take()
    return refusal


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("direct", Match.EXACT),
        ("fanout", Match.ALL),
        ("topic", Match.PATTERN),
        ("headers", Match.ATTRIBUTES),
    ],
)
def test_exchange_types_become_matches(kind: str, match: Match) -> None:
    wire = Wire().open()
    declare = spec.ExchangeDeclare(
        0,
        "e",
        kind,
        durable=True,
        auto_delete=True,
        internal=True,
        arguments=Table.of({"alternate-exchange": "other"}),
    )
    assert wire.ask(1, declare) == spec.ExchangeDeclareOk()
    options = wire.client.topology.router_options("default", "e")
    assert options is not None
    assert (options.match, options.durable, options.internal) == (match, True, True)
    assert options.delete_when_unused
    assert options.alternate == "other"
    assert wire.ask(1, declare) == spec.ExchangeDeclareOk()


def test_a_delayed_exchange_is_one_of_the_type_it_names() -> None:
    wire = Wire().open()
    arguments = Table.of({"x-delayed-type": "topic"})
    declare = spec.ExchangeDeclare(0, "d", "x-delayed-message", durable=True, arguments=arguments)
    assert wire.ask(1, declare) == spec.ExchangeDeclareOk()
    assert wire.ask(1, declare) == spec.ExchangeDeclareOk()
    options = wire.client.topology.router_options("default", "d")
    assert options is not None
    assert options.match is Match.PATTERN
    without = spec.ExchangeDeclare(0, "d2", "x-delayed-message", durable=True)
    assert _refusal(wire, without)[0] == PRECONDITION_FAILED


@pytest.mark.parametrize("kind", ["", "x-consistent-hash", "x-random", "DIRECT", "nonsense"])
def test_an_unknown_exchange_type_is_precondition_failed(kind: str) -> None:
    wire = Wire().open()
    code, text = _refusal(wire, spec.ExchangeDeclare(0, "e", kind))
    assert code == PRECONDITION_FAILED
    assert "unknown exchange type" in text


def test_an_exchange_redeclared_with_other_properties_is_inequivalent() -> None:
    wire = Wire().open()
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct", durable=True))
    assert _refusal(wire, spec.ExchangeDeclare(0, "e", "topic", durable=True)) == (
        PRECONDITION_FAILED,
        (
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': "
            "received 'topic' but current is 'direct'"
        ),
    )
    for how in ({"durable": False}, {"auto_delete": True}, {"internal": True}):
        method = spec.ExchangeDeclare(0, "e", "direct", **{"durable": True, **how})
        assert _refusal(wire, method)[0] == PRECONDITION_FAILED
    method = spec.ExchangeDeclare(
        0, "e", "direct", durable=True, arguments=Table.of({"alternate-exchange": "x"})
    )
    assert _refusal(wire, method)[0] == PRECONDITION_FAILED


def test_passive_declare_of_an_exchange() -> None:
    wire = Wire().open()
    for name in ("", "amq.topic"):
        method = spec.ExchangeDeclare(0, name, "", passive=True)
        assert wire.ask(1, method) == spec.ExchangeDeclareOk()
    missing = spec.ExchangeDeclare(0, "missing", "", passive=True)
    assert _refusal(wire, missing) == (
        NOT_FOUND,
        "NOT_FOUND - no exchange 'missing' in vhost '/'",
    )


@pytest.mark.parametrize("name", sorted(PREDECLARED))
def test_predeclared_exchanges_are_there_and_stay(name: str) -> None:
    wire = Wire().open()
    wire.declare("q")
    assert wire.ask(1, spec.QueueBind(0, "q", name, "k")) == spec.QueueBindOk()
    same = spec.ExchangeDeclare(0, name, PREDECLARED[name], durable=True)
    assert wire.ask(1, same) == spec.ExchangeDeclareOk()
    assert _refusal(wire, spec.ExchangeDelete(0, name))[0] == ACCESS_REFUSED
    other = spec.ExchangeDeclare(0, name, PREDECLARED[name], durable=False)
    assert _refusal(wire, other)[0] == PRECONDITION_FAILED


def test_the_default_exchange_can_not_be_touched() -> None:
    wire = Wire().open()
    wire.declare("q")
    for method in (
        spec.ExchangeDeclare(0, "", "direct", durable=True),
        spec.ExchangeDelete(0, ""),
        spec.QueueBind(0, "q", "", "k"),
        spec.QueueUnbind(0, "q", "", "k"),
        spec.ExchangeBind(0, "amq.direct", "", "k"),
        spec.ExchangeBind(0, "", "amq.direct", "k"),
    ):
        assert _refusal(wire, method)[0] == ACCESS_REFUSED


def test_deleting_an_exchange() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    wire.ask(1, spec.QueueBind(0, "q", "e", "k"))
    assert _refusal(wire, spec.ExchangeDelete(0, "e", if_unused=True))[0] == PRECONDITION_FAILED
    assert wire.ask(1, spec.ExchangeDelete(0, "e")) == spec.ExchangeDeleteOk()
    assert wire.ask(1, spec.ExchangeDelete(0, "e")) == spec.ExchangeDeleteOk()


def _routes(wire: Wire, exchange: str) -> list[tuple[object, ...]]:
    router = wire.client.router("default", exchange)
    assert router is not None
    return [(route.key, route.topic or route.router, route.attributes) for route in router.routes]


def test_bindings_are_routes_in_the_kernels_spelling_and_unbinding_removes_them() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "t", "topic"))
    bind = spec.QueueBind(0, "q", "t", "a.*.b/c+d.#")
    assert wire.ask(1, bind) == spec.QueueBindOk()
    assert wire.ask(1, bind) == spec.QueueBindOk()
    assert _routes(wire, "t") == [("a/+/b.c*d/#", "q", ())]
    assert wire.ask(1, spec.QueueUnbind(0, "q", "t", "a.*.b/c+d.#")) == spec.QueueUnbindOk()
    assert wire.ask(1, spec.QueueUnbind(0, "q", "t", "never")) == spec.QueueUnbindOk()
    assert _routes(wire, "t") == []


def test_an_empty_queue_and_key_in_bind_mean_the_last_declared_queue_and_its_name() -> None:
    wire = Wire().open()
    wire.declare("last")
    wire.ask(1, spec.QueueBind(0, "", "amq.direct", ""))
    wire.ask(1, spec.QueueBind(0, "last", "amq.direct", ""))
    assert [key for key, _, _ in _routes(wire, "amq.direct")] == ["last", ""]


def test_bindings_with_other_arguments_are_other_bindings() -> None:
    wire = Wire().open()
    wire.declare("q")
    for number in (1, 2):
        arguments = Table.of({"n": number})
        wire.ask(1, spec.QueueBind(0, "q", "amq.direct", "k", arguments=arguments))
    assert len(_routes(wire, "amq.direct")) == 2
    wire.ask(1, spec.QueueUnbind(0, "q", "amq.direct", "k", Table.of({"n": 1})))
    assert len(_routes(wire, "amq.direct")) == 1


def test_a_headers_binding_names_the_attributes() -> None:
    wire = Wire().open()
    wire.declare("q")
    cases = {
        "all": (AttributesMatch.ALL_OF, ["a", "v"]),
        "any": (AttributesMatch.ANY_OF, ["a", "v"]),
        "all-with-x": (AttributesMatch.ALL_OF, ["a", "x-b", "v"]),
        "any-with-x": (AttributesMatch.ANY_OF, ["a", "x-b", "v"]),
    }
    for word, (combine, names) in cases.items():
        arguments = Table.of({"x-match": word, "a": 1, "x-b": "2", "v": None})
        wire.ask(1, spec.QueueBind(0, "q", "amq.headers", word, arguments=arguments))
        router = wire.client.router("default", "amq.headers")
        assert router is not None
        route = router.routes[-1]
        assert route.combine is combine
        assert [name for name, _ in route.attributes] == names
        assert dict(route.attributes)["v"] == b"\xc0"
    for word in ("some", 5):
        arguments = Table.of({"x-match": word, "a": 1})
        method = spec.QueueBind(0, "q", "amq.headers", "", arguments=arguments)
        assert _refusal(wire, method)[0] == PRECONDITION_FAILED


def test_exchanges_can_be_bound_to_exchanges() -> None:
    wire = Wire().open()
    for name in ("source", "target"):
        wire.ask(1, spec.ExchangeDeclare(0, name, "fanout"))
    bind = spec.ExchangeBind(0, "target", "source", "k")
    assert wire.ask(1, bind) == spec.ExchangeBindOk()
    assert _routes(wire, "source") == [("k", "target", ())]
    assert wire.ask(1, spec.ExchangeUnbind(0, "target", "source", "k")) == spec.ExchangeUnbindOk()
    assert _routes(wire, "source") == []


@pytest.mark.parametrize(
    "method",
    [
        spec.QueueBind(0, "missing", "amq.direct", "k"),
        spec.QueueBind(0, "q", "missing", "k"),
        spec.ExchangeBind(0, "missing", "amq.direct", "k"),
        spec.ExchangeBind(0, "amq.direct", "missing", "k"),
    ],
)
def test_binding_what_does_not_exist_is_not_found(method: object) -> None:
    wire = Wire().open()
    wire.declare("q")
    code, text = _refusal(wire, method)
    assert code == NOT_FOUND
    assert "'missing'" in text


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (spec.QueueUnbind(0, "q", "missing", "k"), spec.QueueUnbindOk()),
        (spec.QueueUnbind(0, "missing", "amq.direct", "k"), spec.QueueUnbindOk()),
        (spec.ExchangeUnbind(0, "missing", "amq.direct", "k"), spec.ExchangeUnbindOk()),
        (spec.ExchangeUnbind(0, "amq.direct", "missing", "k"), spec.ExchangeUnbindOk()),
    ],
)
def test_what_does_not_exist_is_unbound_already(method: object, answer: object) -> None:
    """As in RabbitMQ, which looks for the binding and not for its ends."""
    wire = Wire().open()
    wire.declare("q")
    assert wire.ask(1, method) == answer


@pytest.mark.parametrize(
    ("denied", "method"),
    [
        ((CONFIGURE_TOPIC, "q"), spec.QueueDeclare(0, "q", durable=True)),
        ((INSPECT_TOPIC, "q"), spec.QueueDeclare(0, "q", passive=True)),
        ((CONFIGURE_TOPIC, "q"), spec.QueueDelete(0, "q")),
        ((CONSUME_TOPIC, "q"), spec.QueuePurge(0, "q")),
        ((CONSUME_TOPIC, "q"), spec.BasicGet(0, "q")),
        ((CONSUME_TOPIC, "q"), spec.BasicConsume(0, "q", "")),
        ((PUBLISH_TOPIC, "q"), spec.QueueBind(0, "q", "e", "k")),
        ((CONSUME_ROUTER, "e"), spec.QueueBind(0, "q", "e", "k")),
        ((CONSUME_ROUTER, "e"), spec.QueueUnbind(0, "q", "e", "k")),
        ((CONFIGURE_ROUTER, "e"), spec.ExchangeDeclare(0, "e", "direct")),
        ((CONFIGURE_ROUTER, "e"), spec.ExchangeDelete(0, "e")),
        ((INSPECT_ROUTER, "e"), spec.ExchangeDeclare(0, "e", "", passive=True)),
        ((PUBLISH_ROUTER, "e"), spec.ExchangeBind(0, "e", "amq.direct", "k")),
        ((CONSUME_ROUTER, "e"), spec.ExchangeBind(0, "amq.direct", "e", "k")),
        (
            (PUBLISH_ROUTER, "dlx"),
            spec.QueueDeclare(
                0, "n", durable=True, arguments=Table.of({"x-dead-letter-exchange": "dlx"})
            ),
        ),
        (
            (PUBLISH_ROUTER, "ae"),
            spec.ExchangeDeclare(
                0, "n", "direct", arguments=Table.of({"alternate-exchange": "ae"})
            ),
        ),
    ],
)
def test_what_a_user_may_not_do_is_access_refused(denied: tuple[int, str], method: object) -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "direct"))
    wire.logins.denied.add(denied)
    code, text = _refusal(wire, method)
    assert code == ACCESS_REFUSED
    assert f"'{denied[1]}'" in text
    assert text.endswith("refused for user 'guest'")


def test_a_binding_of_weir_topics_asks_for_the_right_to_read_the_topic() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.declare("secret.one")
    bind = spec.QueueBind(0, "q", "weir.topics", "secret.one")
    wire.logins.denied.add((CONSUME_TOPIC, "secret.one"))
    code, text = _refusal(wire, bind)
    assert code == ACCESS_REFUSED
    assert "'secret.one'" in text


def test_an_exchange_that_no_amqp_client_declared_has_the_type_of_its_match() -> None:
    wire = Wire().open()
    wire.client.topology.put_router("default", "made", RouterOptions(match=Match.PATTERN), ())
    declare = spec.ExchangeDeclare(0, "made", "topic", durable=True)
    assert wire.ask(1, declare) == spec.ExchangeDeclareOk()
