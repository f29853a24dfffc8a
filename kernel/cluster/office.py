"""Where an operator's wishes about a cluster go to: the leaders whom they concern.

Any process that is connected to the stores has one; the admin API speaks to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from ..errors import Code, KernelError
from ..ids import METADATA_GROUP, QueueId, RaftGroup
from ..remote.leaders import RemoteLeaders
from . import messages
from .balance import moves
from .desk import decode_span
from .messages import Admit, Dismiss, HandOver, Progress, Report, Span
from .records import NodeRecord

HAND_OVER_SECONDS = 5.0
"""For another store to lead: an election among those that are up takes a round trip."""

LOOK_SECONDS = 0.05


class NodeStatus(msgspec.Struct, frozen=True):
    """One store."""

    number: int
    state: str
    address: str
    host: str
    store: str
    answers: bool
    version: str
    uptime_ms: int
    draining: bool
    accepting: bool
    leads: int
    lag: int
    """Entries that it is behind its leaders, in the group where it is furthest behind."""
    error: str


class ReplicaStatus(msgspec.Struct, frozen=True):
    node: int
    voter: bool
    lag: int


class GroupStatus(msgspec.Struct, frozen=True):
    """One Raft group, as its leader says; without one as whoever answers."""

    group: int
    leader: int
    """0: none serves it."""
    term: int
    last: int
    commit: int
    changing: bool
    replicas: list[ReplicaStatus]


class ClusterStatus(msgspec.Struct, frozen=True):
    name: str
    nodes: list[NodeStatus]
    groups: list[GroupStatus]


class Office:
    """See the module's head."""

    def __init__(
        self,
        name: str,
        remote: RemoteLeaders,
        records: Callable[[], Mapping[int, NodeRecord]],
    ) -> None:
        """`records()`: the register as this process knows it."""
        self._name = name
        self._remote = remote
        self._records = records

    # --- Wishes -----------------------------------------------------------------------------

    async def admit(self, asked: Admit) -> Progress:
        """Have a store belong to the cluster. Raises KernelError (`admission.admitted`)."""
        return await self._ask(METADATA_GROUP, messages.ADMIT, asked)

    async def dismiss(self, number: int) -> Progress:
        """Have a store leave it. Raises KernelError (`admission.dismissed`)."""
        return await self._ask(METADATA_GROUP, messages.DISMISS, Dismiss(number))

    async def transfer(self, group: RaftGroup, to: int) -> int:
        """Have another store lead a group (`to` 0: whoever is furthest); which one does now. Raises
        KernelError: NOT_FOUND, INVALID_ARGUMENT, TIMEOUT.
        """
        if group not in self._remote.table.groups:
            raise KernelError(Code.NOT_FOUND, f"there is no group {group}")
        before = self._remote.table.of(group)
        progress = await self._ask(group, messages.HAND_OVER, HandOver(group, to))
        if progress.done:
            return to
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while self._remote.table.of(group) in {0, before}:  # noqa: ASYNC110 - told to many
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            message = f"group {group} is still led by store {before}: {progress.what}"
            raise KernelError(Code.TIMEOUT, message) from None
        return self._remote.table.of(group)

    async def rebalance(self) -> list[tuple[int, int, int]]:
        """Spread the leaders evenly; (group, from, to) of each that has moved."""
        reports = await self._reports()
        leaders: dict[int, int] = {}
        able: dict[int, set[int]] = {}
        resting = {number for number, each in reports.items() if each.draining}
        for group in _led(reports).values():
            leaders[group.group] = group.leader
            able[group.group] = ({*group.voters} & reports.keys()) - resting
        moved: list[tuple[int, int, int]] = []
        for number, before, to in moves(leaders, able):
            await self.transfer(RaftGroup(number), to)
            moved.append((number, before, to))
        return moved

    async def span(self, group: RaftGroup, queue: QueueId) -> tuple[int, int]:
        """(first offset kept, next offset) of a queue; (0, 0) if it is gone."""
        parts = messages.pack(Span(group, queue))
        return await self._remote.ask(group, messages.SPAN, parts, decode_span)

    async def _ask(
        self, group: RaftGroup, method: int, asked: Admit | Dismiss | HandOver
    ) -> Progress:
        def decode(payload: bytes) -> Progress:
            return messages.unpack(payload, Progress)

        return await self._remote.ask(group, method, messages.pack(asked), decode)

    # --- Status -----------------------------------------------------------------------------

    async def status(self) -> ClusterStatus:
        """Every store and every group, asked now."""
        reports = await self._reports()
        groups = [_group(each) for each in _led(reports).values()]
        nodes = [
            self._node(number, record, reports.get(number), groups, reports)
            for number, record in sorted(self._records().items())
        ]
        return ClusterStatus(self._name, nodes, sorted(groups, key=lambda each: each.group))

    async def _reports(self) -> dict[int, Report]:
        numbers = list(self._records())
        found = await asyncio.gather(*map(self._report, numbers))
        return {number: each for number, each in zip(numbers, found, strict=True) if each}

    async def _report(self, number: int) -> Report | None:
        def decode(payload: bytes) -> Report:
            return messages.unpack(payload, Report)

        try:
            return await self._remote.ask_node(number, messages.REPORT, (), decode)
        except KernelError:
            return None

    def _node(
        self,
        number: int,
        record: NodeRecord,
        report: Report | None,
        groups: list[GroupStatus],
        reports: Mapping[int, Report],
    ) -> NodeStatus:
        facts = record.facts
        lags = [each.lag for group in groups for each in group.replicas if each.node == number]
        return NodeStatus(
            number=number,
            state=record.state,
            address=f"[{facts.host}]:{facts.port}"
            if ":" in facts.host
            else f"{facts.host}:{facts.port}",
            host=facts.label,
            store=facts.store,
            answers=report is not None,
            version=report.version if report else "",
            uptime_ms=report.uptime_ms if report else 0,
            draining=report.draining if report else False,
            accepting=report.accepting if report else False,
            leads=sum(each.leader == number for each in groups),
            lag=max(lags, default=0),
            error=self._error(number, reports),
        )

    def _error(self, number: int, reports: Mapping[int, Report]) -> str:
        """What is wrong with a store, the nearest thing first."""
        for each in reports.values():
            if number in each.problems:
                return each.problems[number]
        if number not in reports:
            return self._remote.last_error(number) or "it does not answer"
        for each in reports.values():
            if number in each.errors:
                return f"store {each.number}: {each.errors[number]}"
        return ""


def _led(reports: Mapping[int, Report]) -> dict[int, messages.GroupReport]:
    """Every group, by the report of its leader of the highest term; else by that of anybody."""
    found: dict[int, messages.GroupReport] = {}
    for report in reports.values():
        for each in report.groups:
            known = found.get(each.group)
            if known is None or (each.serves, each.term) > (known.serves, known.term):
                found[each.group] = each
    return found


def _group(report: messages.GroupReport) -> GroupStatus:
    lags = {each.node: max(0, report.last - each.match) for each in report.replicas}
    members = [*report.voters, *report.learners]
    return GroupStatus(
        group=report.group,
        leader=report.leader if report.serves else 0,
        term=report.term,
        last=report.last,
        commit=report.commit,
        changing=report.joint or bool(report.learners),
        replicas=[
            ReplicaStatus(node, node in report.voters, lags.get(node, 0))
            for node in sorted(members)
        ],
    )
