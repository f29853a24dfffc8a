"""Declaring, purging and deleting queues, with RabbitMQ's arguments and errors."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Field, Table
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
)
from adapters.amqp.topology.arguments import QueueDeclaration
from kernel.api.client import PutTopic
from kernel.api.model import (
    DEFAULT_GROUP,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from tests.adapters.amqp.fake_kernel import FakeClient
from tests.adapters.amqp.wire import Wire, close_of


def _topic(wire: Wire, name: str) -> TopicInfo:
    return wire.client.queues["default", name].info


def _refusal(wire: Wire, method: object) -> tuple[int, str]:
    """The error, after which the channel is open again."""
    refusal = close_of(wire.ask(1, method))  # type: ignore[arg-type]
    wire.send(1, spec.ChannelCloseOk(), spec.ChannelOpen())
    wire.take()
    return refusal


def test_a_durable_queue_becomes_a_durable_topic_with_the_default_group() -> None:
    wire = Wire().open()
    assert wire.declare("orders") == spec.QueueDeclareOk("orders", 0, 0)
    topic = _topic(wire, "orders")
    assert topic.options.durable
    assert not topic.options.hidden
    assert topic.options.owner is None
    assert topic.groups == {DEFAULT_GROUP: GroupOptions()}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"durable": False}, {"durable": False, "hidden": False, "delete_when_unused": False}),
        (
            {"durable": True, "auto_delete": True},
            {"durable": False, "hidden": True, "delete_when_unused": True},
        ),
        (
            {"durable": True, "exclusive": True},
            {"durable": False, "hidden": True, "owner": 1},
        ),
    ],
    ids=["transient", "auto-delete", "exclusive"],
)
def test_transient_auto_delete_and_exclusive_queues_are_transient(
    how: dict[str, object], expected: dict[str, object]
) -> None:
    wire = Wire().open()
    wire.declare("q", **how)
    options = _topic(wire, "q").options
    assert {name: getattr(options, name) for name in expected} == expected


def test_a_server_named_queue_gets_a_name_and_the_channel_remembers_it() -> None:
    wire = Wire().open()
    first = wire.declare("")
    second = wire.declare("", exclusive=True)
    assert first.queue.startswith("amq.gen-")
    assert second.queue.startswith("amq.gen-")
    assert first.queue != second.queue
    assert _topic(wire, first.queue).options.hidden
    assert wire.ask(1, spec.QueuePurge(0, "")) == spec.QueuePurgeOk(0)
    assert wire.ask(1, spec.QueueDelete(0, "")) == spec.QueueDeleteOk(0)
    assert ("default", second.queue) not in wire.client.queues


def test_an_empty_name_without_a_declaration_before_it_is_not_found() -> None:
    wire = Wire().open()
    for method in (
        spec.QueuePurge(0, ""),
        spec.QueueDelete(0, ""),
        spec.BasicGet(0, ""),
        spec.BasicConsume(0, "", ""),
        spec.QueueBind(0, "", "amq.direct", "k"),
    ):
        assert _refusal(wire, method) == (NOT_FOUND, "NOT_FOUND - no previously declared queue")


def test_a_passive_declaration_means_the_name_it_says_also_if_that_is_empty() -> None:
    """In RabbitMQ alone among the methods it does not mean the last declared queue."""
    wire = Wire().open()
    wire.declare("q")
    method = spec.QueueDeclare(0, "", passive=True)
    assert _refusal(wire, method) == (NOT_FOUND, "NOT_FOUND - no queue '' in vhost '/'")


def test_an_exclusive_queue_is_durable_in_word_only() -> None:
    wire = Wire().open()
    wire.declare("mine", exclusive=True)
    for durable in (True, False):
        method = spec.QueueDeclare(0, "mine", durable=durable, exclusive=True)
        assert wire.ask(1, method) == spec.QueueDeclareOk("mine", 0, 0)


def test_passive_declare_tells_the_counts_and_never_creates() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"a")
    wire.publish(1, "", "q", b"b")
    passive = spec.QueueDeclare(0, "q", passive=True)
    assert wire.ask(1, passive) == spec.QueueDeclareOk("q", 2, 0)
    missing = spec.QueueDeclare(0, "missing", passive=True)
    assert _refusal(wire, missing) == (NOT_FOUND, "NOT_FOUND - no queue 'missing' in vhost '/'")


def test_declare_again_is_fine_and_tells_the_counts() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"a")
    wire.send(1, spec.BasicConsume(0, "q", "t", no_ack=True))
    wire.take()
    changes = len(wire.client.administered)
    assert wire.declare("q") == spec.QueueDeclareOk("q", 0, 1)
    assert len(wire.client.administered) == changes


def test_nowait_is_not_answered_but_errors_still_come() -> None:
    wire = Wire().open()
    wire.send(1, spec.QueueDeclare(0, "q", durable=True, nowait=True))
    assert wire.take_methods() == []
    assert ("default", "q") in wire.client.queues
    wire.send(1, spec.QueueDeclare(0, "q", durable=False, nowait=True))
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED


def test_cr_and_lf_are_taken_out_of_names() -> None:
    wire = Wire().open()
    assert wire.declare("a\r\nb").queue == "ab"


def test_names_of_any_utf8_and_255_bytes_are_taken() -> None:
    wire = Wire().open()
    for name in ("ü|{} ☃", "x" * 255, "é" * 127):
        assert wire.declare(name).queue == name


def test_a_name_that_is_not_utf8_is_refused() -> None:
    wire = Wire().open()
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    code, text = _refusal(wire, spec.QueueDeclare(0, name))
    assert code == PRECONDITION_FAILED
    assert "UTF-8" in text


@pytest.mark.parametrize("name", ["amq.mine", "__metering", "weir.mine", "$share", "%RETRY"])
def test_reserved_names_cannot_be_created_but_be_looked_for(name: str) -> None:
    wire = Wire().open()
    code, text = _refusal(wire, spec.QueueDeclare(0, name, durable=True))
    assert code == ACCESS_REFUSED
    assert "reserved prefix" in text
    assert _refusal(wire, spec.QueueDeclare(0, name, passive=True))[0] == NOT_FOUND
    assert _refusal(wire, spec.ExchangeDeclare(0, name, "direct"))[0] == ACCESS_REFUSED


def test_arguments_become_options_of_topic_and_group() -> None:
    wire = Wire().open()
    arguments = Table(
        (
            ("x-message-ttl", Field("I", 60_000)),
            ("x-expires", Field("l", 120_000)),
            ("x-max-length", Field("B", 100)),
            ("x-max-length-bytes", Field("s", 5_000)),
            ("x-overflow", Field("S", b"reject-publish")),
            ("x-max-priority", Field("b", 10)),
            ("x-dead-letter-exchange", Field("S", b"dlx")),
            ("x-dead-letter-routing-key", Field("S", b"a.b/c")),
            ("x-single-active-consumer", Field("t", True)),
            ("x-delivery-limit", Field("I", 4)),
            ("x-whatever", Field("S", b"kept")),
        )
    )
    wire.declare("q", durable=True, arguments=arguments)
    topic = _topic(wire, "q")
    options = topic.options
    assert options.message_ttl_ms == 60_000
    assert options.unused_expiry_ms == 120_000
    assert options.messages_max == 100
    assert options.bytes_max == 5_000
    assert options.overflow is Overflow.REJECT
    assert options.priority_max == 10
    group = topic.groups[DEFAULT_GROUP]
    assert group.dead_letter == DeadLetter(router="dlx", key="a/b.c")
    assert group.single_active_consumer
    assert group.attempts_max == 5
    kept = QueueDeclaration.decode(options.declarations["amqp"])
    assert kept.arguments == arguments


def test_special_values_of_arguments() -> None:
    wire = Wire().open()
    wire.declare("now", durable=True, arguments=Table.of({"x-message-ttl": 0}))
    assert _topic(wire, "now").options.message_ttl_ms == 0
    wire.declare("years", durable=True, arguments=Table.of({"x-expires": 315_360_000_000}))
    assert _topic(wire, "years").options.unused_expiry_ms == 315_360_000_000
    wire.declare("any", durable=True, arguments=Table.of({"x-delivery-limit": -1}))
    assert _topic(wire, "any").groups[DEFAULT_GROUP].attempts_max is None
    quorum = {"x-queue-type": "quorum"}
    wire.declare("quorum", durable=True, arguments=Table.of(quorum))
    assert _topic(wire, "quorum").groups[DEFAULT_GROUP].attempts_max is None
    quorum["x-dead-letter-exchange"] = ""
    quorum["x-dead-letter-routing-key"] = "dead.letters"
    wire.declare("limited", durable=True, arguments=Table.of(quorum))
    group = _topic(wire, "limited").groups[DEFAULT_GROUP]
    assert group.attempts_max == 21
    assert group.dead_letter == DeadLetter(router=None, key="dead.letters")
    wire.declare("own", durable=True, arguments=Table.of({"x-dead-letter-exchange": "dlx"}))
    assert _topic(wire, "own").groups[DEFAULT_GROUP].dead_letter == DeadLetter("dlx", None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-mode": "lazy"},
        {"x-queue-version": 2},
        {"x-queue-leader-locator": "balanced"},
        {"x-initial-cluster-size": 3},
        {"x-dead-letter-strategy": "at-least-once"},
        {"x-my-own": {"nested": [1]}},
    ],
)
def test_arguments_about_placement_and_unknown_ones_are_accepted(
    arguments: dict[str, object],
) -> None:
    wire = Wire().open()
    wire.declare("q", durable=True, arguments=Table.of(arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "60"},
        {"x-message-ttl": 1.5},
        {"x-message-ttl": True},
        {"x-message-ttl": 315_360_000_001},
        {"x-expires": 0},
        {"x-max-length": -1},
        {"x-max-length-bytes": "many"},
        {"x-max-priority": 256},
        {"x-overflow": "drop-tail"},
        {"x-overflow": 1},
        {"x-queue-type": "stream"},
        {"x-queue-type": "fancy"},
        {"x-dead-letter-exchange": 5},
        {"x-dead-letter-exchange": b"\xff"},
        {"x-dead-letter-routing-key": "k"},
        {"x-dead-letter-strategy": "never"},
        {"x-single-active-consumer": "yes"},
        {"x-delivery-limit": -2},
        {"x-consumer-timeout": 0},
        {"x-max-age": "7D"},
        {"x-delayed-retry-type": "linear"},
        {"x-queue-type": "quorum", "x-max-priority": 5},
        {"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx"},
        {"x-big": "x" * 40_000},
    ],
    ids=str,
)
def test_bad_and_unserved_arguments_are_precondition_failed(arguments: dict[str, object]) -> None:
    wire = Wire().open()
    table = Table.of(arguments)  # type: ignore[arg-type]
    code, _ = _refusal(wire, spec.QueueDeclare(0, "q", durable=True, arguments=table))
    assert code == PRECONDITION_FAILED
    assert wire.client.queues == {}


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"durable": False}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_a_quorum_queue_is_durable_and_nobodys(how: dict[str, bool], word: str) -> None:
    wire = Wire().open()
    table = Table.of({"x-queue-type": "quorum"})
    code, text = _refusal(wire, spec.QueueDeclare(0, "q", arguments=table, **how))
    assert (code, text) == (
        PRECONDITION_FAILED,
        f"PRECONDITION_FAILED - invalid property '{word}' for queue 'q' in vhost '/'",
    )


def test_redeclaring_with_other_properties_is_inequivalent() -> None:
    wire = Wire().open()
    wire.declare("q", durable=True, arguments=Table((("x-message-ttl", Field("I", 1000)),)))
    same = Table((("x-message-ttl", Field("l", 1000)), ("x-unknown", Field("t", True))))
    wire.declare("q", durable=True, arguments=same)
    other = spec.QueueDeclare(0, "q", durable=True)
    assert _refusal(wire, other) == (
        PRECONDITION_FAILED,
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received none but current is the value '1000' of type 'signedint'"
        ),
    )
    other = spec.QueueDeclare(0, "q", durable=False)
    assert _refusal(wire, other)[1].endswith(
        "inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    table = Table.of({"x-message-ttl": 2000})
    assert _refusal(wire, spec.QueueDeclare(0, "q", durable=True, arguments=table))[1].endswith(
        "received the value '2000' of type 'long' but current is the value '1000' of type "
        "'signedint'"
    )


def test_no_queue_type_and_classic_are_the_same() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.declare("q", durable=True, arguments=Table.of({"x-queue-type": "classic"}))
    quorum = spec.QueueDeclare(0, "q", durable=True, arguments=Table.of({"x-queue-type": "quorum"}))
    assert _refusal(wire, quorum)[0] == PRECONDITION_FAILED


def test_a_redeclaration_counts_as_use_of_a_queue_that_expires() -> None:
    wire = Wire().open()
    arguments = Table.of({"x-expires": 60_000})
    wire.declare("q", durable=True, arguments=arguments)
    wire.declare("q", durable=True, arguments=arguments)
    assert [type(each) for each in wire.client.administered] == [PutTopic, PutTopic]


def test_an_exclusive_queue_is_locked_for_every_other_connection() -> None:
    client = FakeClient()
    owner, other = Wire(client).open(), Wire(client).open()
    owner.declare("mine", exclusive=True)
    owner.declare("mine", exclusive=True)
    for method in (
        spec.QueueDeclare(0, "mine", exclusive=True),
        spec.QueueDeclare(0, "mine", passive=True),
        spec.QueueBind(0, "mine", "amq.direct", "k"),
        spec.QueuePurge(0, "mine"),
        spec.QueueDelete(0, "mine"),
        spec.BasicConsume(0, "mine", ""),
        spec.BasicGet(0, "mine"),
    ):
        code, text = _refusal(other, method)
        assert code == RESOURCE_LOCKED
        assert "locked queue 'mine' in vhost '/'" in text
    other.publish(1, "", "mine", b"anybody may send")
    assert len(client.queues["default", "mine"].slots) == 1
    owner.send(0, spec.ConnectionClose(200, "", 0, 0))
    assert ("default", "mine") not in client.queues


def test_exclusive_must_be_the_same_on_redeclaration() -> None:
    wire = Wire().open()
    wire.declare("shared")
    exclusive = spec.QueueDeclare(0, "shared", durable=True, exclusive=True)
    assert _refusal(wire, exclusive)[0] == RESOURCE_LOCKED
    wire.declare("mine", exclusive=True)
    assert _refusal(wire, spec.QueueDeclare(0, "mine"))[0] == RESOURCE_LOCKED


def _made_by_another_protocol(wire: Wire, **options: object) -> None:
    made = TopicOptions(declarations={"sqs": b"{}"}, **options)  # type: ignore[arg-type]
    groups = {DEFAULT_GROUP: GroupOptions(lease_ms=45_000)}
    wire.client._put_topic(PutTopic("default", "theirs", made, groups))


def test_a_topic_of_another_protocol_can_be_declared_and_keeps_what_is_not_asked_for() -> None:
    wire = Wire().open()
    _made_by_another_protocol(wire, message_ttl_ms=5_000, message_bytes_max=1 << 20)
    wire.declare("theirs", durable=True, arguments=Table.of({"x-max-length": 7}))
    topic = _topic(wire, "theirs")
    assert topic.options.message_ttl_ms == 5_000
    assert topic.options.message_bytes_max == 1 << 20
    assert topic.options.messages_max == 7
    assert set(topic.options.declarations) == {"sqs", "amqp"}
    assert topic.groups[DEFAULT_GROUP].lease_ms == 45_000
    # From now on its own declaration counts.
    assert _refusal(wire, spec.QueueDeclare(0, "theirs", durable=True))[0] == PRECONDITION_FAILED


@pytest.mark.parametrize("how", [{}, {"durable": True, "auto_delete": True}])
def test_a_topic_of_another_protocol_cannot_become_transient(how: dict[str, bool]) -> None:
    wire = Wire().open()
    _made_by_another_protocol(wire)
    assert _refusal(wire, spec.QueueDeclare(0, "theirs", **how))[0] == PRECONDITION_FAILED


def test_purge_tells_how_many_were_ready() -> None:
    wire = Wire().open()
    wire.declare("q")
    for body in (b"a", b"b", b"c"):
        wire.publish(1, "", "q", body)
    wire.send(1, spec.BasicGet(0, "q"))
    wire.take()
    assert wire.ask(1, spec.QueuePurge(0, "q")) == spec.QueuePurgeOk(2)
    assert _refusal(wire, spec.QueuePurge(0, "missing"))[0] == NOT_FOUND


def test_delete_tells_how_many_were_ready_and_a_missing_queue_is_fine() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"a")
    assert wire.ask(1, spec.QueueDelete(0, "q")) == spec.QueueDeleteOk(1)
    assert wire.ask(1, spec.QueueDelete(0, "q")) == spec.QueueDeleteOk(0)


def test_delete_if_unused_and_if_empty() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.publish(1, "", "q", b"a")
    assert _refusal(wire, spec.QueueDelete(0, "q", if_empty=True))[0] == PRECONDITION_FAILED
    wire.send(1, spec.BasicConsume(0, "q", "t"))
    wire.take()
    assert _refusal(wire, spec.QueueDelete(0, "q", if_unused=True))[0] == PRECONDITION_FAILED
    assert ("default", "q") in wire.client.queues


def test_a_kernel_error_becomes_its_reply_code() -> None:
    wire = Wire().open()
    wire.client.refusal = KernelError(Code.LIMIT_EXCEEDED, "names_max: 10 topics")
    assert _refusal(wire, spec.QueueDeclare(0, "q", durable=True)) == (
        PRECONDITION_FAILED,
        "PRECONDITION_FAILED - names_max: 10 topics",
    )
    wire.client.refusal = KernelError(Code.TIMEOUT, "no majority")
    close = wire.ask(1, spec.QueueDeclare(0, "q", durable=True))
    assert isinstance(close, spec.ConnectionClose)
    assert (close.reply_code, close.failing_class, close.failing_method) == (INTERNAL_ERROR, 50, 10)


def test_two_connections_that_declare_at_once_get_the_same_queue() -> None:
    wire = Wire().open()
    wire.declare("q")
    # The look-up was made before the other one's creation was known here.
    topics = wire.client.topology.topics
    hidden = topics.pop(("default", "q"))
    original = wire.client._put_topic

    def raced(change: PutTopic) -> TopicInfo:
        topics["default", "q"] = hidden
        return original(change)

    wire.client._put_topic = raced  # type: ignore[method-assign]
    assert wire.declare("q") == spec.QueueDeclareOk("q", 0, 0)


def test_names_that_are_not_loaded_are_loaded() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.client.unloaded = {"q"}
    assert wire.ask(1, spec.QueueDeclare(0, "q", passive=True)) == spec.QueueDeclareOk("q", 0, 0)
    assert wire.client.loads == [(("q",), ())]
