"""The network of the hostile client: late, in order only within a lane, and breaking."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.requests.leader import Done, Leader
from kernel.requests.request_pipeline import Attempt

DELAY_S_MAX = 0.05
FAILURE_SHARE = 0.01
"""Of commands that find no leader, and of those that lose their answer."""


def through_bytes(value: Any) -> Any:
    """What arrives at the other end of a wire."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))


def error_through_bytes(error: KernelError) -> KernelError:
    """An error travels as its name on the wire and its sentence."""
    wire, sentence = through_bytes([error.code.wire, error.message])
    return KernelError(next(code for code in Code if code.wire == wire), sentence)


def errors_through_bytes(
    failures: Mapping[int, KernelError] | None,
) -> dict[int, KernelError] | None:
    if failures is None:
        return None
    return {position: error_through_bytes(error) for position, error in failures.items()}


class Late:
    """Calls that come late, in order within a lane and in any order between lanes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._lanes: dict[object, deque[Callable[[], None]]] = {}
        """What is under way."""
        self._last: dict[object, float] = {}
        """When the last of it is due."""

    def call(self, lane: object, action: Callable[[], None]) -> None:
        self._lanes.setdefault(lane, deque()).append(action)
        due = self._loop.time() + self._chance.uniform(0, DELAY_S_MAX)
        due = self._last[lane] = max(due, self._last.get(lane, 0.0))
        self._loop.call_at(due, self._arrive, lane)

    def _arrive(self, lane: object) -> None:
        # Whichever timer it is: some loops round the time of each, and so change their order.
        calls = self._lanes[lane]
        action = calls.popleft()
        if not calls:
            del self._lanes[lane], self._last[lane]
        action()

    async def pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, DELAY_S_MAX))

    async def turn(self, lane: object) -> None:
        """Wait for what came before in the lane, and the while that the way takes."""
        arrived: asyncio.Future[None] = self._loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self.call(lane, arrive)
        await arrived


@dataclass(eq=False, slots=True)
class _Parcel:
    attempt: Attempt
    answer: Done
    given: bool = False
    """The leader has it."""


@dataclass(slots=True)
class _Road:
    """The connection to one leader."""

    parcels: list[_Parcel] = field(default_factory=list)
    broken: bool = False
    """And the client has not heard of it yet."""
    breaks: int = 0
    """So far. What is heard of an earlier one says nothing of the last."""


class HostileLink:
    """`kernel.requests.request_pipeline.Link` whose connections break."""

    def __init__(
        self, late: Late, chance: random.Random, leader: Callable[[RaftGroup], Leader]
    ) -> None:
        self._late = late
        self._chance = chance
        self._leader = leader
        self._roads: dict[RaftGroup, _Road] = {}
        self.failures: dict[Code, int] = {Code.NOT_LEADER: 0, Code.UNKNOWN_OUTCOME: 0}

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        parcel = _Parcel(attempt, answer)
        road = self._roads.setdefault(group, _Road())
        if road.broken:
            self._fail(group, parcel, Code.NOT_LEADER)
            return
        road.parcels.append(parcel)
        self._late.call(("to", group), lambda: self._arrive(group, parcel))

    def _arrive(self, group: RaftGroup, parcel: _Parcel) -> None:
        if parcel not in self._roads[group].parcels:
            return  # its connection has broken
        fate = self._chance.random()
        if fate < FAILURE_SHARE:
            self._break(group, Code.NOT_LEADER, parcel)
            return
        lost = fate < 2 * FAILURE_SHARE
        if lost and self._chance.random() < 0.5:
            self._break(group, Code.UNKNOWN_OUTCOME, parcel)
            return
        parcel.given = True
        parcel.attempt(self._leader(group), lambda result: self._executed(group, parcel, result))
        if lost:
            self._break(group, Code.UNKNOWN_OUTCOME, parcel)

    def _executed(self, group: RaftGroup, parcel: _Parcel, result: object) -> None:
        self._late.call(("from", group), lambda: self._deliver(group, parcel, result))

    def _deliver(self, group: RaftGroup, parcel: _Parcel, result: object) -> None:
        road = self._roads[group]
        if parcel in road.parcels:
            road.parcels.remove(parcel)
            parcel.answer(result)

    def _break(self, group: RaftGroup, code: Code, first: _Parcel) -> None:
        """What the leader has is of unknown outcome, the rest it never got."""
        self.failures[code] += 1
        road = self._roads[group]
        parcels, road.parcels = road.parcels, []
        road.broken = True
        road.breaks += 1
        for each in parcels:
            mine = code if each is first else Code.NOT_LEADER
            self._fail(group, each, Code.UNKNOWN_OUTCOME if each.given else mine)

    def _fail(self, group: RaftGroup, parcel: _Parcel, code: Code) -> None:
        error = KernelError(code, "the connection to the leader has broken")
        road = self._roads[group]
        which = road.breaks

        def heard() -> None:
            if road.breaks == which:
                road.broken = False
            parcel.answer(error)

        self._late.call(("from", group), heard)
