"""One client of the line protocol: lines in, lines out, no I/O of its own."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from adapters.base import RECHECK_STEP
from auth.errors import AuthError
from auth.policies.policy_rules import Action, ResourceKind, permission
from kernel.api.client import ConsumerSpec, Settlement
from kernel.api.message import Flag, Message, encode, split
from kernel.api.model import DEFAULT_GROUP
from kernel.api.tracing import ConnectedUser
from kernel.common.errors import Code, KernelError, NotLoaded
from metering.counters import measure_slots
from tests.line_protocol.origin import ORIGIN_BYTE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from adapters.base import DeliveryCounter, Rights, Services
    from auth.policies.policy_rules import Permission
    from kernel.api.client import Consumer, Deliveries, PublishBatch, Session
    from kernel.api.model import TopicInfo

PUBLISH: Final = permission(Action.PUBLISH, ResourceKind.TOPIC)
CONSUME: Final = permission(Action.CONSUME, ResourceKind.TOPIC)


class Host(Protocol):
    """The driver."""

    @property
    def peer(self) -> str: ...
    def send(self, line: str) -> None: ...
    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run it; take no line before it has ended."""

    def end(self, last: str) -> None:
        """Send a last line, and close."""


class LineConnection:
    """`PublishSink`, `ConsumerSink`, `SettleSink` and `Holder` of one client."""

    def __init__(self, host: Host, services: Services) -> None:
        self._host = host
        self._client = services.client
        self._users = services.users
        self._clock = services.clock
        self._meter = services.meter
        self._unacked_max = services.settings.limit("unacked_max")
        self.rights: Rights | None = None
        self.session: Session | None = None
        self.is_waiting = False
        """For the kernel's answer to the last line; the next one is taken after it."""
        self.is_over = False
        self._last: str | None = None
        """Said when the last line is answered; then the connection ends."""
        self._held: dict[int, tuple[Consumer, int]] = {}
        """What the client was sent and has not acked, by its number: (consumer, offset)."""
        self._consumers: dict[Consumer, TopicInfo] = {}
        self._counters: dict[Consumer, DeliveryCounter] = {}
        self._numbers = count(1)

    # --- Lines ------------------------------------------------------------------------------

    def line(self, line: str) -> None:
        """Carry a line out; its answer may come later."""
        if self.is_over:
            return
        word, _, rest = line.partition(" ")
        words: dict[str, Callable[[str], None]] = {"PUB": self._publish, "SUB": self._subscribe}
        words["ACK"] = self._ack
        try:
            if word == "LOGIN":
                self._host.run(self._sign_in(*_two(rest)))
            elif self.rights is None or word not in words:
                self._host.end(f"ERR invalid_argument {word!a} cannot be said here")
            else:
                words[word](rest)
        except NotLoaded:
            self._host.run(self._load(line, rest.partition(" ")[0]))
        except (KernelError, ValueError) as error:
            self._host.send(refusal(error))

    async def _load(self, line: str, topic: str) -> None:
        """A name that this gateway has not looked up yet: then once more."""
        try:
            await self._client.load(self._tenant, topics=(topic,), routers=())
            self.line(line)
        except KernelError as error:
            self._host.send(refusal(error))

    async def _sign_in(self, login: str, password: str) -> None:
        try:
            rights = await self._users.sign_in(login, password.encode(), self._host.peer)
        except AuthError as error:
            self._host.end(f"ERR {error.code.wire} {error.message}")
            return
        if self.is_over:
            return
        if self.session is None:
            self.rights = rights
            principal, peer = rights.principal, self._host.peer
            by = ConnectedUser(principal.tenant, principal.name, "line", peer, "")
            self.session = self._client.open_session(f"line {peer}", ORIGIN_BYTE, by)
        self._host.send("OK")

    @property
    def _tenant(self) -> str:
        return self.rights.principal.tenant if self.rights is not None else ""

    def _topic(self, name: str, right: Permission) -> TopicInfo:
        """Raises KernelError NOT_ALLOWED, NOT_FOUND; NotLoaded."""
        assert self.rights is not None
        if not self.rights.allows(right, name):
            raise KernelError(Code.NOT_ALLOWED, f"no right to use {name!a} so")
        topic = self._client.topic(self._tenant, name)
        if topic is None:
            raise KernelError(Code.NOT_FOUND, f"there is no topic {name!a}")
        return topic

    # --- Publishing -------------------------------------------------------------------------

    def _publish(self, rest: str) -> None:
        name, text = _two(rest)
        topic = self._topic(name, PUBLISH)
        assert self.session is not None
        batch = self._client.batch(self.session, self)
        high, low = batch.uid()
        slot = encode(
            Message(
                origin=ORIGIN_BYTE,
                priority=0,
                flags=Flag.PERSISTENT,
                uid=high.to_bytes(8, "big") + low.to_bytes(8, "big"),
                published_ms=self._clock.wall_ms(),
                ttl_ms=0,
                delay_ms=0,
                key_hash=0,
                tag_hash=0,
                ext={},
                native=b"",
                body=str(json.loads(text)).encode(),
            )
        )
        batch.add(self._client.to_topic(topic), (slot,), len(slot))
        self.is_waiting = True
        self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        self._answered((batch.failures or {}).get(0))

    # --- Consuming --------------------------------------------------------------------------

    def _subscribe(self, name: str) -> None:
        topic = self._topic(name, CONSUME)
        consumer = self._client.attach(ConsumerSpec(topic, DEFAULT_GROUP, self.session), self)
        self._consumers[consumer] = topic
        if self._meter is not None:
            counter = self._meter.delivery_counter(self._tenant, name, DEFAULT_GROUP)
            self._counters[consumer] = counter
        self._host.send("OK")
        consumer.grant(self._unacked_max)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        name = self._consumers[consumer].name
        for offset, slot in zip(deliveries.offsets, deliveries.slots, strict=True):
            number = next(self._numbers)
            self._held[number] = consumer, offset
            body = split(slot)[1].decode("utf-8", "replace")
            self._host.send(f"MSG {number} {name} {json.dumps(body)}")
        if consumer in self._counters:
            self._counters[consumer].count(len(deliveries.slots), *measure_slots(deliveries.slots))

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        del self._consumers[consumer]
        self._host.end(refusal(error))

    def _ack(self, rest: str) -> None:
        held = self._held.pop(int(rest), None)
        if held is None:
            raise KernelError(Code.LEASE_LOST, f"{rest} is not waiting for an ACK")
        consumer, offset = held
        self.is_waiting = True
        self._client.settle(consumer, Settlement.ACK, (offset,), sink=self, tag=offset)
        consumer.grant(1)

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        self._answered(next(iter(failures.values())) if failures else None)

    # --- Going ------------------------------------------------------------------------------

    def _answered(self, error: KernelError | None) -> None:
        self.is_waiting = False
        self._host.send("OK" if error is None else refusal(error))
        if self._last is not None:
            self._host.end(self._last)

    def leave(self, last: str) -> None:
        """Say a last line once all that was asked is answered, and close."""
        self._last = last
        if not self.is_waiting:
            self._host.end(last)

    @property
    def is_leaving(self) -> bool:
        return self._last is not None

    def recheck(self) -> Iterator[None]:
        """`adapters.base.Holder`."""
        if self.rights is None:
            return
        if not self.rights.is_alive():
            self._host.end("ERR not_allowed the user was removed, disabled or signed out")
            return
        for seen, topic in enumerate(list(self._consumers.values()), 1):
            if not seen % RECHECK_STEP:
                yield
            if not self.rights.allows(CONSUME, topic.name):
                self._host.end(f"ERR not_allowed no right to consume {topic.name} any more")
                return

    def lost(self) -> None:
        """The connection is gone; what it held is delivered again."""
        self.is_over = True
        if self.session is not None:
            self.session.close()


def refusal(error: KernelError | ValueError) -> str:
    """The line for what cannot be done."""
    if isinstance(error, KernelError):
        return f"ERR {error.code.wire} {error.message}"
    return f"ERR invalid_argument {error}"


def _two(rest: str) -> tuple[str, str]:
    first, _, second = rest.partition(" ")
    if not first or not second:
        raise ValueError("two words are needed")
    return first, second
