"""The way of clients to leaders: in order within a connection, late, and breaking."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.requests.leader import Done
from kernel.requests.request_pipeline import Attempt

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

DELAY_S_MAX = 0.01
BREAKS = 0.01
"""Share of commands whose connection breaks, before or after they were given to the leader."""


@dataclass(eq=False, slots=True)
class _Parcel:
    attempt: Attempt
    answer: Done
    given: bool = False


@dataclass(eq=False, slots=True)
class _Road:
    """A connection to one process."""

    machine: Machine | None
    process: int
    parcels: dict[_Parcel, None] = field(default_factory=dict)
    last: float = 0.0
    broken: bool = False


class SimulatedLink:
    """`kernel.requests.request_pipeline.Link`."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run = run
        self._chance = random.Random(seed)
        self._roads: dict[RaftGroup, _Road] = {}

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        parcel = _Parcel(attempt, answer)
        road = self._roads.get(group)
        if road is None:
            machine = self._run.someone_who_leads(group, self._chance)
            road = _Road(machine, machine.process if machine is not None else 0)
            self._roads[group] = road
        road.parcels[parcel] = None
        if not road.broken:
            self._late(road, lambda: self._arrive(group, road, parcel))

    def _late(self, road: _Road, action: Done | object) -> None:
        loop = self._run.loop
        due = loop.time() + self._chance.uniform(0.0001, DELAY_S_MAX)
        due = road.last = max(due, road.last + 1e-6)
        loop.call_at(due, action)  # type: ignore[arg-type]

    def _arrive(self, group: RaftGroup, road: _Road, parcel: _Parcel) -> None:
        if road.broken:
            return
        machine = road.machine
        if machine is None or not machine.runs or machine.process != road.process:
            self._break(group, road, Code.NOT_LEADER)
            return
        leader = machine.opened.store.serving(group)
        if leader is None:
            self._break(group, road, Code.NOT_LEADER)
            return
        fate = self._chance.random()
        if fate < BREAKS:
            self._break(group, road, Code.UNKNOWN_OUTCOME)
            return
        parcel.given = True
        parcel.attempt(leader, lambda result: self._executed(group, road, parcel, result))
        if fate < 2 * BREAKS:
            self._break(group, road, Code.UNKNOWN_OUTCOME)

    def _executed(self, group: RaftGroup, road: _Road, parcel: _Parcel, result: object) -> None:
        if road.broken or parcel not in road.parcels:
            return
        if isinstance(result, KernelError) and result.code in {
            Code.NOT_LEADER,
            Code.UNKNOWN_OUTCOME,
        }:
            if result.code is Code.NOT_LEADER:
                parcel.given = False
            self._break(group, road, result.code)
            return
        self._late(road, lambda: self._answer(road, parcel, result))

    def _answer(self, road: _Road, parcel: _Parcel, result: object) -> None:
        if not road.broken:
            del road.parcels[parcel]
            parcel.answer(result)

    def died(self, machine: Machine) -> None:
        """A process has ended: its connections break."""
        for group, road in list(self._roads.items()):
            if road.machine is machine and not road.broken:
                self._break(group, road, Code.UNKNOWN_OUTCOME)

    def _break(self, group: RaftGroup, road: _Road, code: Code) -> None:
        road.broken = True
        self._late(road, lambda: self._fail(group, road))

    def _fail(self, group: RaftGroup, road: _Road) -> None:
        """Everything on the road has failed; the next command takes a new one."""
        del self._roads[group]
        for parcel in road.parcels:
            code = Code.UNKNOWN_OUTCOME if parcel.given else Code.NOT_LEADER
            if parcel.given:
                self._run.unknown_outcome = True
            parcel.answer(KernelError(code, "the connection to the leader has broken"))
