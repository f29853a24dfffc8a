"""What the state machines of this process have counted, on its way to the meters.

Durable Raft groups: cumulative rows (`store_meter`), one observation a window, of the topics that
were counted since the last report. Once everything observed is in `__metering`, the group hears so
(METERED) and forgets the deleted topics among it; until then, and so after every crash, it tells
them again. The values are cumulative: what is told twice is billed once.

The transient group lives and dies with this process: what it has counted since the last time goes
into the gateway's meter, like any traffic that no log holds.

The tenant of `__metering` itself is not metered.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from kernel.broker.group_state.usage import Grade, UsageCount, Verb, counts, counts_of
from kernel.broker.log_commands.commands import Metered
from kernel.common.ids import TRANSIENT_GROUP, TopicId
from metering.schema import INTERNAL, Action, Kind, QueueClass
from metering.schema.record import TEXT_BYTES_MAX
from metering.store_meter import Observation, StoreCounter, StoreMeter
from metering.window import RowKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kernel.store.replicas.replica import Replica
    from metering.counters import Meter
    from metering.window import Window

SYSTEM_TENANT = "__system"

_ACTIONS = {
    Verb.PUBLISHED: Action.PUBLISH,
    Verb.ROUTED: Action.ROUTE,
    Verb.DELIVERED: Action.DELIVER,
    Verb.ACKED: Action.ACK,
    Verb.RETURNED: Action.RETURN,
}
_CLASSES = {
    Grade.PLAIN: QueueClass.STANDARD,
    Grade.ORDERED: QueueClass.FIFO,
    Grade.DELAYED: QueueClass.DELAY,
    Grade.CLASS_1: QueueClass.QOS1,
    Grade.CLASS_2: QueueClass.QOS2,
    Grade.HALF: QueueClass.TRANSACTION,
}
_OF_PUBLISHING = (Verb.PUBLISHED, Verb.ROUTED)
# What a bill asks of transient traffic: references in memory are not `routed`, and acks are free.
_OF_TRANSIENT = (Verb.PUBLISHED, Verb.DELIVERED, Verb.RETURNED)

_HASH_DIGITS = 16

FORGOTTEN_AT_ONCE = 200
"""Counters that nothing was counted by since: 0.05 ms."""


class Slice(Protocol):
    """Long work, of which others are to notice little (`gateway.process.slices`)."""

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn."""

    async def pause(self) -> None:
        """Let others have their turn."""


class _Whole:
    """Work that is done at once."""

    is_over = False

    async def pause(self) -> None:
        """Never asked for."""


class StoreSource:
    """Reads the counters of one process's Raft groups. Belongs to its event loop."""

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        meter: Meter,
        origins: Mapping[int, str],
        *,
        plain_classes: Mapping[str, str] | None = None,
        region: str = "",
        slices: Callable[[], Slice] | None = None,
    ) -> None:
        """`replicas()`: the groups that this process counts for now: those it leads, and the
        transient one if clients connect to it. `origins`: the protocol's name of each origin byte;
        one without is named by number. `plain_classes`: the class of what was published with no
        grade, by protocol, where that has a name of its own. `slices()`: how long one looks at many
        topics before others have their turn; None: until all are looked at.
        """
        self._slices = slices or _Whole
        self._looking = asyncio.Lock()
        self._replicas = replicas
        self._meter = meter
        self._origins = origins
        self._plain_classes = plain_classes or {}
        self.unnamed: set[int] = set()
        """Origins that were told by number: an adapter's that this process should know."""
        self._region = region
        self._meters: dict[int, StoreMeter] = {}
        self._observed: dict[int, int] = {}
        """Raft group to the log index up to which it was observed, if that told anything."""
        self._counted: dict[tuple[object, ...], tuple[int, int, int]] = {}
        """Values of the transient group's counters that the gateway's meter has."""

    async def windows(self, start_us: int, end_us: int) -> list[Window]:
        """The rows of the durable groups that grew, for the span [start, end) within an hour. Of
        very many topics the last are looked at a little later than the first; what they count
        meanwhile is behind the index that is reported, so that they are told of once more.
        """
        async with self._looking:
            looked = [await self._look(each) for each in list(self._durable())]
        # From here on nothing interrupts: who is interrupted before has told nothing.
        found: list[Window] = []
        for group, applied, observation in looked:
            window = observation.end(start_us, end_us)
            if window is not None:
                found.append(window)
                self._observed[group] = applied
        return found

    async def _look(self, replica: Replica) -> tuple[int, int, Observation]:
        """A group, the index that it is told of, and its counters."""
        group, state = int(replica.group), replica.state
        meter = self._meters.get(group)
        if meter is None:
            meter = self._meters[group] = StoreMeter(group, region=self._region)
        applied, piece = state.applied, self._slices()
        observation = meter.begin()
        for number in list(state.ledger.counted):
            counts_now = counts_of(state, TopicId(number))
            told = [self._counter(each) for each in counts_now if each.tenant != SYSTEM_TENANT]
            observation.add(state.applied, told)
            if piece.is_over:
                await piece.pause()
        while observation.forget(FORGOTTEN_AT_ONCE):
            if piece.is_over:
                await piece.pause()
        return group, applied, observation

    def reported(self) -> None:
        """Everything that `windows` gave is in `__metering`."""
        observed, self._observed = self._observed, {}
        for replica in self._durable():
            index = observed.get(int(replica.group))
            if index is not None:
                replica.propose(Metered(index), (0, 0, 0), None)

    def gather(self) -> None:
        """Count what the transient group has counted since the last time."""
        for replica in self._replicas():
            if replica.group == TRANSIENT_GROUP:
                self._gather(replica)

    def _gather(self, transient: Replica) -> None:
        state = transient.state
        if not state.ledger.counted:
            return
        for each in _of_tenants(transient):
            if each.verb not in _OF_TRANSIENT:
                continue
            key = (each.topic_id, each.verb, each.origin, each.grade, each.group)
            before = self._counted.get(key, (0, 0, 0))
            now = (each.messages, each.size_bytes, each.units_4k)
            if now != before:
                self._counted[key] = now
                handle = self._meter.counter(self._transient_key(each))
                handle.count(*(b - a for a, b in zip(before, now, strict=True)))
        alive = state.topics.keys() | set(state.ledger.counted)
        self._counted = {key: value for key, value in self._counted.items() if key[0] in alive}
        transient.propose(Metered(state.applied), (0, 0, 0), None)

    def forgotten(self) -> int:
        """Messages that deleted topics held and no report told, because there were too many."""
        return sum(each.state.ledger.forgotten for each in self._replicas())

    def undeclared(self) -> list[int]:
        """Origins that something was counted for and that have no name."""
        told = (each.origin for replica in self._replicas() for each in _of_tenants(replica))
        return sorted({origin for origin in told if origin not in self._origins})

    def _durable(self) -> Iterator[Replica]:
        return (each for each in self._replicas() if each.group != TRANSIENT_GROUP)

    def _counter(self, count: UsageCount) -> StoreCounter:
        return StoreCounter(
            tenant=count.tenant,
            topic=short(count.topic),
            group=count.group,
            protocol=self._protocol(count.origin),
            action=_ACTIONS[count.verb],
            queue_class=self._class(count),
            messages=count.messages,
            size_bytes=count.size_bytes,
            units_4k=count.units_4k,
            cum_since=count.since,
            end_offset=count.end_offset,
        )

    def _transient_key(self, count: UsageCount) -> RowKey:
        return RowKey(
            kind=Kind.API,
            tenant=count.tenant,
            protocol=self._protocol(count.origin),
            action=_ACTIONS[count.verb],
            topic=short(count.topic),
            group=count.group,
            queue_class=self._class(count),
            region=self._region,
        )

    def _class(self, count: UsageCount) -> str:
        plain = _CLASSES[count.grade]
        if count.grade is Grade.PLAIN and count.verb in _OF_PUBLISHING:
            return self._plain_classes.get(self._protocol(count.origin), plain)
        return plain

    def _protocol(self, origin: int) -> str:
        name = self._origins.get(origin)
        if name is None:
            self.unnamed.add(origin)
            return f"origin-{origin}"
        return name


def _of_tenants(replica: Replica) -> Iterator[UsageCount]:
    return (each for each in counts(replica.state) if each.tenant != SYSTEM_TENANT)


def short(name: str) -> str:
    """A name that fits a record's text: a longer one ends in the hash of all of it."""
    raw = name.encode()
    if len(raw) <= TEXT_BYTES_MAX:
        return name
    digest = blake2b(raw, digest_size=_HASH_DIGITS // 2).hexdigest()
    return raw[: TEXT_BYTES_MAX - _HASH_DIGITS - 1].decode(errors="ignore") + "~" + digest


def protocol_names(names: Mapping[int, str], internal: int) -> dict[int, str]:
    """Origin byte to protocol, with the server's own moves under the name that is never billed."""
    return {**names, internal: INTERNAL}
