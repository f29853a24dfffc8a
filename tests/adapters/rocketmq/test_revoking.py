"""Rights that are withdrawn from what goes on: streams, questions about transactions, leases that
are renewed. (A waiting receive: tests/gateway/test_revocation.)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from adapters.rocketmq.clients.callers import Caller, Tenants
from adapters.rocketmq.clients.registry import Clients, KnownClient
from adapters.rocketmq.errors import Code, RocketmqError
from adapters.rocketmq.services.questions import Questions
from adapters.rocketmq.settings import RocketmqSettings
from adapters.rocketmq.transport.telemetry import Stream
from adapters.tree_rights import PUBLISH_TOPIC
from auth.principal import Principal
from tests.adapters.in_process import EveryRight

if TYPE_CHECKING:
    from tests.adapters.rocketmq.support import Broker

KEY = ("default", "c")


class Signed:
    """A caller whose rights and key a test takes away."""

    def __init__(self) -> None:
        self.denied: set[tuple[int, str]] = set()
        self.rights = EveryRight(Principal("default", "u"), self.denied)
        self.is_admitted = True
        self.caller = Caller(
            "default",
            "",
            "c",
            is_node=False,
            rights=self.rights,
            tenants=Tenants({}, signs_in=True),
            is_admitted=lambda: self.is_admitted,
        )


def rechecked(holder: Any) -> None:
    for _ in holder.recheck():
        pass


async def test_a_stream_ends_with_its_key_or_its_user() -> None:
    for how in ("key", "user"):
        signed = Signed()
        stream = Stream(None, signed.caller, KnownClient(KEY, 0), "grpc", "")  # type: ignore[arg-type]
        rechecked(stream)
        assert not stream.ended.is_set()
        signed.is_admitted = how != "key"
        signed.rights.alive = how != "user"
        rechecked(stream)
        assert stream.ended.is_set()
        assert stream.was_revoked


def test_nobody_is_asked_about_transactions_of_a_topic_that_it_may_not_publish_to() -> None:
    signed, asked = Signed(), []
    topic = SimpleNamespace(name="orders", options=SimpleNamespace(tree=False))
    questions = Questions(None, signed.caller, asked.append)  # type: ignore[arg-type]
    questions._put(topic, b"first")  # type: ignore[arg-type]
    signed.denied.add((PUBLISH_TOPIC, "orders"))
    questions._put(topic, b"second")  # type: ignore[arg-type]
    signed.denied.clear()
    signed.is_admitted = False
    questions._put(topic, b"third")  # type: ignore[arg-type]
    assert asked == [b"first"]


def test_leases_of_who_may_not_consume_are_renewed_no_longer() -> None:
    clients = Clients(RocketmqSettings(auto_renew_lease_ms=1_000))
    client = clients.heard_of(KEY, 0)
    allowed = {b"mine": True, b"other": True}

    def check(token: bytes) -> Any:
        def raise_unless_allowed() -> None:
            if not allowed[token]:
                raise RocketmqError(Code.FORBIDDEN, "no right")

        return raise_unless_allowed

    topic: Any = SimpleNamespace(id=1, name="orders")
    for token in allowed:
        clients.renew(client, topic, "g", [token], 0, check(token))
    rechecked(clients)
    assert clients.renewal_count == 2
    allowed[b"mine"] = False
    rechecked(clients)
    [extension] = clients.tick(500)
    assert [change.token for change in extension.changes] == [b"other"]
    assert clients.revoked == 1


def test_all_that_goes_on_is_asked(broker: Broker) -> None:
    holders = broker.do(lambda: list(broker.adapter.holders()))
    assert any(isinstance(each, Clients) for each in holders)
