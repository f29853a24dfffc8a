"""Where an operator's wishes about a cluster go to: the leaders whom they concern.

Any process that is connected to the stores has one; the admin API speaks to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from ..common.errors import Code, KernelError
from ..common.ids import ADDED_FIRST, METADATA_GROUP, RaftGroup
from ..common.limits import ADDED_GROUPS_MAX
from ..remote.leader_calls.leaders import RemoteLeaders
from ..store.raft_groups.healing import LEVEL_ENTRIES
from . import copy_rate, messages, replica_moves
from .cluster_cut import cut_of, cut_stores
from .leader_balance import moves
from .messages import (
    AddGroups,
    Admit,
    Cut,
    CutTold,
    Dismiss,
    Drain,
    FeatureList,
    Features,
    GatewayList,
    GatewayStatus,
    HandOver,
    HeartbeatReport,
    Keep,
    Move,
    Orders,
    Report,
    SetReplicas,
    StepProgress,
)
from .outsiders import outsiders
from .records import NodeRecord, NodeState

HAND_OVER_SECONDS = 5.0
"""For another store to lead: an election among those that are up takes a round trip."""

LOOK_SECONDS = 0.05

HEARTBEAT_REPORT_MS = 900
"""A report that nobody takes within so long is over: the next one is due."""


class NodeStatus(msgspec.Struct, frozen=True):
    """What is shown of one store."""

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
    copy_setting: int | None = None
    """Bytes a second that copies may take of it by its settings; 0: no bound; null: it is of an
    older build, or does not answer."""
    zone: str = ""
    """What may fail at once with it and others, as replicas are kept apart by; empty: not set."""


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
    moving: str = ""
    """How far a move of a replica is, if one is wanted."""
    short: str = ""
    """What replicas it lacks, if it should have more."""
    receiving: dict[int, messages.SnapshotReport] = {}
    """By number of a store: how far the group's snapshot is that it is being sent."""


class AddedStatus(msgspec.Struct, frozen=True):
    """A data group that was added while the cluster ran."""

    group: int
    waits: str
    """What it waits for before it takes queues; empty: nothing."""


class ClusterStatus(msgspec.Struct, frozen=True):
    name: str
    nodes: list[NodeStatus]
    groups: list[GroupStatus]
    replicas: int = 0
    """How many each data group is to have; 0: one in each store."""
    problems: list[str] = []
    """Of where replicas are: what no move mends."""
    added: list[AddedStatus] = []
    """Data groups that were added since the cluster began."""
    copy_rate: int | None = None
    """Bytes a second that copies may take of each store, as it was set; 0: no bound; null: what
    each store's settings say, which is its `copy_setting`."""


class ClusterAdmin:
    """Carries out what operators wish of a cluster, at the leaders concerned."""

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

    async def admit(self, asked: Admit) -> StepProgress:
        """Have a store belong to the cluster. Raises KernelError (`admission.admitted`)."""
        return await self._ask(METADATA_GROUP, messages.ADMIT, asked)

    async def dismiss(self, number: int) -> StepProgress:
        """Have a store leave it. Raises KernelError (`admission.dismissed`)."""
        return await self._ask(METADATA_GROUP, messages.DISMISS, Dismiss(number))

    async def transfer(self, group: RaftGroup, to: int) -> int:
        """Have another store lead a group (`to` 0: whoever is furthest), and go on doing so until
        the members of the cluster are others or `spread` is asked for; which one does now. Raises
        KernelError: NOT_FOUND, INVALID_ARGUMENT, TIMEOUT.
        """
        leader = await self._transfer(group, to)
        await self._ask(METADATA_GROUP, messages.KEEP, Keep([group]))
        return leader

    async def move(self, asked: Move, *, same_host: bool = False) -> StepProgress:
        """Have a group have its replica elsewhere; it takes as long as the data takes. Raises
        KernelError (`replica_moves.check`, `wished`).
        """
        if not asked.cancel:
            groups = led(await self.reports())
            records = self._records()
            if asked.to and asked.to not in records:
                raise KernelError(Code.NOT_FOUND, f"there is no store {asked.to} in the cluster")
            replica_moves.check(asked, groups.get(asked.group), records, same_host=same_host)
        return await self._ask(METADATA_GROUP, messages.MOVE, asked)

    async def set_copy_rate(self, rate: int) -> StepProgress:
        """Have the copies that each store takes in have so many bytes a second, 0: no bound,
        `copy_rate.DEFAULT`: what its settings say. Raises KernelError (`copy_rate.check`;
        NOT_ALLOWED: an older build leads group 0).
        """
        copy_rate.check(rate)
        try:
            return await self._ask(METADATA_GROUP, messages.SET_REPLICAS, SetReplicas(0, rate))
        except KernelError as error:
            if error.code is not Code.INVALID_ARGUMENT:
                raise
            message = "the store that leads group 0 is of an older build, which knows no such rate"
            raise KernelError(Code.NOT_ALLOWED, message) from None

    async def set_replicas(self, count: int) -> StepProgress:
        """Have each data group in so many stores. Raises KernelError (`replica_count.check`)."""
        return await self._ask(METADATA_GROUP, messages.SET_REPLICAS, SetReplicas(count))

    async def add_groups(self, count: int) -> list[int]:
        """Have the cluster have so many data groups more; their numbers. They take queues as soon
        as they have their replicas. Raises KernelError (`added_groups.wanted`); NOT_ALLOWED: the
        feature is off.
        """
        if not 1 <= count <= ADDED_GROUPS_MAX:
            message = f"name how many groups are to be added: 1 to {ADDED_GROUPS_MAX}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        before = self._manager_report(await self.reports()).added
        total = len(before) + count
        await self._ask(METADATA_GROUP, messages.ADD_GROUPS, AddGroups(total))
        return [*range(ADDED_FIRST + len(before), ADDED_FIRST + total)]

    def _manager_report(self, reports: Mapping[int, Report]) -> Report:
        """Raises KernelError UNAVAILABLE: nobody leads group 0."""
        for report in reports.values():
            if any(each.group == METADATA_GROUP and each.serves for each in report.groups):
                return report
        raise KernelError(Code.UNAVAILABLE, "nobody leads group 0 now")

    async def spread(self) -> list[tuple[int, int, int]]:
        """Spread all leaders evenly, those that were moved by hand too; (group, from, to) of each
        that has moved. Raises KernelError.
        """
        await self._ask(METADATA_GROUP, messages.KEEP, Keep([]))
        return await self.rebalance()

    async def _transfer(self, group: RaftGroup, to: int) -> int:
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

    async def rebalance(
        self, most: int | None = None, stays: AbstractSet[int] = frozenset()
    ) -> list[tuple[int, int, int]]:
        """Spread the leaders evenly, by so many moves at most, but for groups whose leader `stays`;
        (group, from, to) of each that has moved. To a store that is behind, or has no room for
        messages, nothing moves. Raises KernelError.
        """
        moved: list[tuple[int, int, int]] = []
        for number, before, to in (await self.wanted(stays))[:most]:
            await self._transfer(RaftGroup(number), to)
            moved.append((number, before, to))
        return moved

    async def wanted(self, stays: AbstractSet[int] = frozenset()) -> list[tuple[int, int, int]]:
        """(group, from, to) of each move that would spread the leaders evenly; first those from
        stores that are not to lead.
        """
        reports = await self.reports()
        leaders: dict[int, int] = {}
        able: dict[int, set[int]] = {}
        unable = {number for number, each in reports.items() if each.draining or not each.accepting}
        for group in led(reports).values():
            leaders[group.group] = group.leader
            behind = {
                each.node for each in group.replicas if group.last - each.match > LEVEL_ENTRIES
            }
            able[group.group] = ({*group.voters} & reports.keys()) - unable - behind
        return moves(leaders, able, stays)

    # --- Features -----------------------------------------------------------------------------

    async def features(self, level: int = 0) -> FeatureList:
        """Turn on the log's features up to a level (0: none); all there are. Raises KernelError:
        UNAVAILABLE (a member does not answer, or does not understand it), INVALID_ARGUMENT.
        """

        def decode(payload: bytes) -> FeatureList:
            return messages.unpack(payload, FeatureList)

        parts = messages.pack(Features(level))
        return await self._remote.ask(METADATA_GROUP, messages.FEATURES, parts, decode)

    # --- Gateways ---------------------------------------------------------------------------

    async def send_report(self, told: HeartbeatReport) -> Orders:
        """A gateway tells whom it serves; what it is to do. Raises KernelError
        (`gateways.Gateways.send_report`), UNAVAILABLE.
        """

        def decode(payload: bytes) -> Orders:
            return messages.unpack(payload, Orders)

        parts = messages.pack(told)
        return await self._remote.ask(
            METADATA_GROUP,
            messages.HEARTBEAT_REPORT,
            parts,
            decode,
            question_ms=HEARTBEAT_REPORT_MS,
        )

    async def drain(self, name: str, *, undo: bool = False) -> StepProgress:
        """Have a gateway's clients go elsewhere, now and until it is undone. Raises KernelError:
        NOT_FOUND; NOT_ALLOWED: no other gateway could serve them.
        """
        return await self._ask(METADATA_GROUP, messages.DRAIN, Drain(name, undo))

    async def gateways(self) -> list[GatewayStatus]:
        """Every gateway that reports."""

        def decode(payload: bytes) -> GatewayList:
            return messages.unpack(payload, GatewayList)

        told = await self._remote.ask(METADATA_GROUP, messages.GATEWAYS, (), decode)
        return told.gateways

    async def flush(self) -> bool:
        """Have every store that leads a group write down what it has counted for the bill; whether
        all have. What one has counted that is gone, whoever leads after it tells again.
        """

        def decode(payload: bytes) -> StepProgress:
            return messages.unpack(payload, StepProgress)

        async def one(number: int) -> bool:
            try:
                told = await self._remote.ask_node(number, messages.FLUSH, (), decode)
            except KernelError:
                return False
            return told.done

        table = self._remote.table
        leaders = {table.of(group) for group in table.groups}
        return all(await asyncio.gather(*map(one, leaders)))

    # --- Backups ------------------------------------------------------------------------------

    async def cut(self, number: int, without: Collection[int]) -> dict[int, NodeRecord]:
        """Have all stores but those `without` pin what they have at one moment, for their backups;
        which these are. `number`: 64 bits that no other cut has. Raises KernelError
        (`cluster_cut.cut_stores`).
        """
        records = self._records()
        stores = cut_of(list(records), without)

        def decode(payload: bytes) -> CutTold:
            return messages.unpack(payload, CutTold)

        def ask(store: int, asked: Cut) -> Awaitable[CutTold]:
            return self._remote.ask_node(store, messages.CUT, messages.pack(asked), decode)

        await cut_stores(ask, stores, without, number)
        return {each: records[each] for each in stores}

    async def _ask(
        self,
        group: RaftGroup,
        method: int,
        asked: Admit | Dismiss | HandOver | Drain | Keep | Move | SetReplicas | AddGroups,
    ) -> StepProgress:
        def decode(payload: bytes) -> StepProgress:
            return messages.unpack(payload, StepProgress)

        return await self._remote.ask(group, method, messages.pack(asked), decode)

    # --- Groups that stores have left ---------------------------------------------------------

    async def let_leave(self, level: int, reports: Mapping[int, Report]) -> None:
        """Have stores let go of what they have of groups that they do not belong to any more.
        `level`: what is on in group 0. Who does not answer is told the next time.
        """

        def decode(payload: bytes) -> StepProgress:
            return messages.unpack(payload, StepProgress)

        members = {n for n, each in self._records().items() if each.state is NodeState.MEMBER}
        for number, word in outsiders(reports, members, level):
            with contextlib.suppress(KernelError):
                await self._remote.ask_node(number, messages.LEAVE, messages.pack(word), decode)

    # --- Status -----------------------------------------------------------------------------

    async def status(self) -> ClusterStatus:
        """Every store and every group, asked now."""
        reports = await self.reports()
        said = [e for e in reports.values() if e.replicas or e.moving or e.added]
        moving = {group: text for each in said for group, text in each.moving.items()}
        short = {group: text for each in said for group, text in each.short.items()}
        groups = [
            _group(
                each,
                moving.get(each.group, ""),
                short.get(each.group, ""),
                _receiving(reports, each.group),
            )
            for each in led(reports).values()
        ]
        nodes = [
            self._node(number, record, reports.get(number), groups, reports)
            for number, record in sorted(self._records().items())
        ]
        return ClusterStatus(
            self._name,
            nodes,
            sorted(groups, key=lambda each: each.group),
            max((each.replicas for each in said), default=0),
            [text for each in said for text in each.unmended],
            [
                AddedStatus(number, text)
                for each in said
                for number, text in sorted(each.added.items())
            ],
            next((e.copy_rate for e in reports.values() if e.copy_rate is not None), None),
        )

    async def reports(self) -> dict[int, Report]:
        """What each store says of itself that answers, asked now."""
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
            copy_setting=report.copy_setting if report else None,
            zone=facts.zone,
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


def led(reports: Mapping[int, Report]) -> dict[int, messages.GroupReport]:
    """Every group, by the report of its leader of the highest term; else by that of anybody."""
    found: dict[int, messages.GroupReport] = {}
    for report in reports.values():
        for each in report.groups:
            known = found.get(each.group)
            if known is None or (each.serves, each.term) > (known.serves, known.term):
                found[each.group] = each
    return found


def _receiving(reports: Mapping[int, Report], group: int) -> dict[int, messages.SnapshotReport]:
    return {
        number: each
        for number, report in sorted(reports.items())
        for each in report.receiving
        if each.group == group
    }


def _group(
    report: messages.GroupReport,
    moving: str,
    short: str,
    receiving: dict[int, messages.SnapshotReport],
) -> GroupStatus:
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
        moving=moving,
        short=short,
        receiving=receiving,
    )
