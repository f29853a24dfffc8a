"""The store's side of the section CLUSTER: answers what is asked about the cluster itself.

Durability: ADMIT and DISMISS are answered once the record is applied, after a majority of group 0
has fdatasynced it; what it leads to is brought about by `manager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable

from msgspec.structs import replace

from ..api.changes import PutRecord
from ..common.errors import Code, KernelError
from ..common.feature_levels import GROUPS, LATEST, REPLICAS, spelled
from ..common.ids import METADATA_GROUP, RaftGroup
from ..common.ports import Clock
from ..in_process.opening import LocalStore
from ..quotas.limits import STORED
from ..raft.members.progress import STATE_NAMES
from ..remote.leader_calls import call_numbers as calls
from ..remote.leader_calls.call_wire import WireError, encode_addresses
from ..rpc.channel import Channel, Reply
from ..rpc.frame import RpcError
from ..rpc.handshake import Hello
from ..store.raft_groups.leaving import LeaveGroup
from ..store.raft_groups.peer_links import PeerLinks
from ..store.replica_loads import ReplicaLoads
from . import (
    added_groups,
    copy_rate,
    kept_leaders,
    messages,
    replica_count,
    replica_moves,
    short_groups,
)
from .added_groups import AddedGroup, GroupState
from .admission import admitted, dismissed
from .copy_rate import CopyRate
from .features import check, lacking, status
from .gateway_balance import Gateways
from .membership_steps import MembershipSteps
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
    GroupReport,
    HandOver,
    HeartbeatReport,
    Keep,
    Leave,
    LimitShare,
    Move,
    ReplicaReport,
    Report,
    SetReplicas,
    SnapshotReport,
    StepProgress,
    Towards,
)
from .records import PREFIX, NodeRecord, encode, key_of, read
from .replica_moves import ReplicaMove
from .roster import Roster
from .short_groups import ShortGroup
from .store_cut import StoreCut

DRAINED = "cluster/drained/"
"""Beginning of the metadata records that name the gateways which are to have no clients: so it
holds on whoever leads, and if the gateway starts anew."""

REGISTER_SECONDS = 10.0
"""For a record to be written: as long as a question may take."""

TASKS_MAX = 16
"""Requests that are being carried out: operators make them one by one."""


class ClusterService:
    """Answers the calls of the cluster at a store (`remote.sections.Section`)."""

    methods = (*messages.METHODS, calls.ADDRESSES)

    def __init__(
        self,
        local: LocalStore,
        links: PeerLinks,
        roster: Roster,
        clock: Clock,
        version: str,
        gateway_traffic_max: int = 0,
        hot_topic_messages: int = 0,
    ) -> None:
        """`version`: of this program, for people; the last two: see `Gateways`."""
        store = local.store
        self._store = store
        self._client = local.client
        self._loads = ReplicaLoads(store, clock)
        self._housekeeper = local.housekeeper
        local.client.administrator.closed = self._closed
        receiver = local.receiver
        if receiver is not None:
            records, setting = local.client.records, receiver.bytes_per_second
            receiver.rate_of = CopyRate(store, clock, records, setting).of
        self._copy_setting = receiver.bytes_per_second if receiver is not None else None
        self._links = links
        self._roster = roster
        self._clock = clock
        self._version = version
        self._began_ms = clock.monotonic_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: dict[Channel, Hello] = {}
        """Gateways, and stores as these ask: every one is connected to every store."""
        self.steps = MembershipSteps(
            store.consensus, lambda: links.connected, local.housekeeper.hasten
        )
        self.gateways = Gateways(gateway_traffic_max, hot_topic_messages)
        self._store_cut = StoreCut(store, local.housekeeper.pins, roster)
        self.draining = False
        """This store is to lead nothing."""
        self.problems: dict[int, str] = {}
        """By number: what keeps a store from joining or leaving (of the leader of group 0)."""
        self.moving: dict[int, str] = {}
        """By group: how far a move of a replica is (of the leader of group 0)."""
        self.growing: dict[int, str] = {}
        """By number of an added group: what it waits for (of the leader of group 0)."""
        self.short: dict[int, str] = {}
        self.unmended: list[str] = []
        """See `Report`."""
        self.flush: Callable[[], Coroutine[object, object, bool]] | None = None
        """Has what this store has counted for the bill written down, and tells whether it is; None:
        nothing is counted."""
        self._group_methods: dict[int, Callable[[bytes, Reply], None]] = {
            messages.TOWARDS: self._towards,
            messages.HAND_OVER: self._hand_over,
            messages.ADMIT: self._admit,
            messages.DISMISS: self._dismiss,
            messages.REPORT: self._report,
            messages.FLUSH: self._flush,
            messages.HEARTBEAT_REPORT: self._heartbeat_report,
            messages.DRAIN: self._drain,
            messages.GATEWAYS: self._gateways,
            messages.KEEP: self._keep,
            messages.FEATURES: self._features,
            messages.LEAVE: self._leave,
            messages.MOVE: self._move,
            messages.SET_REPLICAS: self._set_replicas,
            messages.ADD_GROUPS: self._add_groups,
            messages.CUT: self._cut,
            calls.ADDRESSES: self._addresses,
        }

    async def stop(self) -> None:
        """Give up what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """Nothing is told by itself."""
        self._peers[channel] = peer

    def closed(self, channel: Channel) -> None:
        """What it has asked for goes on."""
        self._peers.pop(channel, None)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Never: everything in this section is a question."""
        raise RpcError(f"method {method} is not told")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Answer one question."""
        answer = self._group_methods.get(method)
        if answer is None:
            reply(KernelError(Code.INVALID_ARGUMENT, f"a store has no method {method}"))
            return
        try:
            answer(payload, reply)
        except WireError as error:
            raise RpcError(str(error)) from None
        except KernelError as error:
            reply(error)

    # --- Groups -----------------------------------------------------------------------------

    def _led(self, number: int) -> RaftGroup:
        """A group that this store leads. Raises KernelError NOT_LEADER."""
        group = RaftGroup(number)
        if self._store.serving(group) is None:
            hint = self._store.standing(group)[1] if group in self._store.groups else 0
            message = f"this store does not serve group {number}"
            raise KernelError(Code.NOT_LEADER, message, hint)
        return group

    def _towards(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Towards)
        self._led(asked.group)
        reply(messages.pack(self.steps.towards(asked)))

    def _hand_over(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, HandOver)
        reply(messages.pack(self.steps.hand_over(self._led(asked.group), asked.to)))

    def _leave(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Leave)
        if asked.group not in self._store.groups:
            raise KernelError(Code.NOT_FOUND, f"there is no group {asked.group}")
        word = LeaveGroup(RaftGroup(asked.group), asked.term, asked.index, asked.level)
        self._do(_answer_when(self._store.leave(word), reply))

    def _addresses(self, payload: bytes, reply: Reply) -> None:
        found = sorted(self._roster.addresses().items())
        reply(encode_addresses([calls.StoreAddress(node, *each) for node, each in found]))

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return self._clock.monotonic_ms()

    def _keep(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Keep)
        self._led(METADATA_GROUP)
        value: bytes | None = None
        if asked.groups:
            keys = [kept_leaders.key_of(group) for group in asked.groups]
            value = kept_leaders.members_of(self._roster.records)
        else:
            keys = list(self._client.records(kept_leaders.PREFIX))
        self._do(_answer(self._put_all(keys, value), reply))

    async def _put_all(self, keys: Iterable[str], value: bytes | None) -> None:
        await self._client.put_records([PutRecord(key, value) for key in keys])

    def kept(self) -> set[int]:
        """Groups whose leader stays where an operator has moved it."""
        members = kept_leaders.members_of(self._roster.records)
        return kept_leaders.kept(self._client.records(kept_leaders.PREFIX), members)

    async def forget_kept(self) -> None:
        """Remove what says nothing any more. Raises KernelError."""
        members = kept_leaders.members_of(self._roster.records)
        records = self._client.records(kept_leaders.PREFIX)
        await self._put_all(kept_leaders.outdated(records, members), None)

    # --- Features -----------------------------------------------------------------------------

    def let_go(self) -> None:
        """Have processes go that do not understand what is on by now."""
        for channel, peer in list(self._peers.items()):
            reason = self._roster.admit_gateway(peer)
            if reason is not None:
                channel.close(reason)

    def _lacking(self, level: int) -> list[str]:
        stores = {f"store {node}": knows for node, knows in self._links.understood.items()}
        gateways = {
            f"gateway at {peer.address or 'no address'}": peer.understands
            for peer in self._peers.values()
            if not peer.node
        }
        silent = set(self._roster.records) - {self._store.node, *self._links.connected}
        return lacking(level, stores | gateways, [f"store {node}" for node in sorted(silent)])

    def _features(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Features)
        self._led(METADATA_GROUP)
        if asked.level:
            check(asked.level, self._store.understands, self._lacking(asked.level))
            self._do(self._raise_level(asked.level, reply))
        else:
            reply(messages.pack(self._feature_list()))

    def _feature_list(self) -> FeatureList:
        store = self._store
        on = store.feature_level
        held = filter(store.holds, store.groups)
        behind = [group for group in held if store.replica(group).state.feature_level < on]
        return FeatureList(status(on, behind, self._lacking(LATEST)))

    async def _raise_level(self, level: int, reply: Reply) -> None:
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                await self._client.raise_level(level)
            reply(messages.pack(self._feature_list()))
        except KernelError as error:
            reply(error)
        except TimeoutError:
            reply(KernelError(Code.TIMEOUT, "the level could not be written in time"))

    # --- Replicas that move -------------------------------------------------------------------

    def moves(self) -> dict[int, tuple[int, ReplicaMove]]:
        """(version, move) by group, of replicas that are to be elsewhere."""
        return replica_moves.read(self._client.records(replica_moves.PREFIX))

    def _moving(self) -> dict[int, str]:
        """How far each is, if this store leads group 0."""
        moves = self.moves() if self._store.serving(METADATA_GROUP) else {}
        return {
            each: _cut(f"{self.moving.get(each, 'begins')} ({move.why})".removesuffix(" ()"))
            for each, (_, move) in moves.items()
        }

    def _move(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Move)
        self._led(METADATA_GROUP)
        self._check_level()
        if asked.group not in self.begun():
            raise KernelError(Code.NOT_FOUND, f"there is no group {asked.group}")
        moves = self.moves()
        move = replica_moves.wished(moves, self._roster.records, asked)
        if move is None:
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        version, _ = moves.get(asked.group, (0, None))
        self._do(_answer(self.put_move(move, version), reply))

    def replicas(self) -> int:
        """How many each data group is to have, as far as it is known here; 0: one in each store."""
        return replica_count.read(self._client.records(replica_count.KEY))[1]

    def short_groups(self) -> tuple[int, dict[int, ShortGroup]]:
        """(version, groups) that have had too few replicas for a while, as every store knows."""
        return short_groups.read(self._client.records(short_groups.KEY))

    def count_short(self) -> int:
        """How many of them there are."""
        return len(self.short_groups()[1])

    def _closed(self) -> set[RaftGroup]:
        return short_groups.closed(self.short_groups()[1]) | added_groups.closed(self.added())

    # --- Groups that are added ----------------------------------------------------------------

    def added(self) -> dict[int, tuple[int, AddedGroup]]:
        """(version, record) of each group that was added, by number, as far as it is known here."""
        return added_groups.read(self._client.records(added_groups.PREFIX))

    def begun(self) -> list[RaftGroup]:
        """Groups that may be given members, as far as it is known here."""
        return [RaftGroup(each) for each in added_groups.begun(self._store.groups, self.added())]

    def _added_status(self) -> dict[int, str]:
        if self._store.serving(METADATA_GROUP) is None:
            return {}
        return {
            number: ""
            if each.state is GroupState.GROWN
            else _cut(
                f"{each.state} in store {each.store}: {self.growing.get(number, '')}".rstrip(": ")
            )
            for number, (_, each) in self.added().items()
        }

    def _add_groups(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, AddGroups)
        self._led(METADATA_GROUP)
        if self._store.feature_level < GROUPS:
            message = f"level {spelled(GROUPS)} is off: `weir cluster features enable` comes first"
            raise KernelError(Code.NOT_ALLOWED, message)
        added = self.added()
        if asked.total <= len(added):
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        members = self._store.consensus.members.values()
        voters = [each.core.tracker.members.voters for each in members]
        found = added_groups.wanted(
            added, self._roster.records, self._alive(), voters, asked.total - len(added)
        )
        self._do(_answer(self._put_added(found), reply))

    async def _put_added(self, groups: Iterable[AddedGroup]) -> None:
        await self._client.put_records(
            [
                PutRecord(added_groups.key_of(each.number), added_groups.encode(each), 0)
                for each in groups
            ]
        )

    async def put_added(self, group: AddedGroup, expected: int) -> None:
        """Write one of these records, if nobody has meanwhile. Raises KernelError."""
        value = added_groups.encode(group)
        key = added_groups.key_of(group.number)
        await self._client.administer(PutRecord(key, value, expected))

    def _set_replicas(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, SetReplicas)
        self._led(METADATA_GROUP)
        if asked.rate is not None:
            self._set_copy_rate(asked.rate, reply)
            return
        self._check_level()
        replica_count.check(asked.count)
        version, count = replica_count.read(self._client.records(replica_count.KEY))
        if count == asked.count:
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        change = PutRecord(replica_count.KEY, replica_count.encode(asked.count), version)
        self._do(_answer(self._administer(change), reply))

    def _set_copy_rate(self, rate: int, reply: Reply) -> None:
        copy_rate.check(rate)
        version, known = copy_rate.read(self._client.records(copy_rate.KEY))
        if rate == (copy_rate.DEFAULT if known is None else known):
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        change = PutRecord(copy_rate.KEY, copy_rate.encode(rate), version)
        self._do(_answer(self._administer(change), reply))

    def _copy_rate(self) -> int | None:
        """Of the leader of group 0, which knows the last one."""
        if not self._store.serving(METADATA_GROUP):
            return None
        return copy_rate.read(self._client.records(copy_rate.KEY))[1]

    def _check_level(self) -> None:
        if self._store.feature_level < REPLICAS:
            message = "`weir cluster features enable replicas` comes first"
            raise KernelError(Code.NOT_ALLOWED, message)

    async def put_move(self, move: ReplicaMove, expected: int) -> None:
        """Write a record, if nobody has meanwhile. Raises KernelError."""
        value = replica_moves.encode(move)
        key = replica_moves.key_of(move.group)
        await self._client.administer(PutRecord(key, value, expected))

    async def end_move(self, group: int, expected: int) -> None:
        """Remove one. Raises KernelError."""
        key = replica_moves.key_of(group)
        await self._client.administer(PutRecord(key, None, expected))

    # --- Cuts, for backups ---------------------------------------------------------------------

    def _cut(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Cut)
        if self._store_cut.waits(asked):
            self._do(_answer_cut(self._store_cut.do(asked), reply))
        else:
            reply(messages.pack(self._store_cut.do_at_once(asked)))

    # --- The register -----------------------------------------------------------------------

    def _admit(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Admit)
        self._led(METADATA_GROUP)
        groups = len(self._store.home_groups)
        replicas = self.replicas()
        self._write(
            asked.number,
            lambda known: admitted(known, asked, self._alive(), groups, replicas),
            reply,
        )

    def _dismiss(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Dismiss)
        self._led(METADATA_GROUP)
        self._write(
            asked.number, lambda known: dismissed(known, asked.number, self._alive()), reply
        )

    def _alive(self) -> set[int]:
        return {self._store.node, *self._links.connected}

    def _write(
        self,
        number: int,
        decide: Callable[[dict[int, NodeRecord]], NodeRecord | None],
        reply: Reply,
    ) -> None:
        found = read(self._client.records(PREFIX))
        record = decide({each: known for each, (_, known) in found.items()})
        if record is None:
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        version = found[number][0] if number in found else 0
        self._do(_answer(self.put(record, version), reply))

    def _do(self, work: Coroutine[object, object, None]) -> None:
        if len(self._tasks) >= TASKS_MAX:
            work.close()
            raise KernelError(Code.BUSY, f"{TASKS_MAX} requests are under way")
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _flush(self, _payload: bytes, reply: Reply) -> None:
        if self.flush is None:
            reply(messages.pack(StepProgress(True, "nothing is counted")))
        else:
            self._do(_answer_flush(self.flush(), reply))

    async def put(self, record: NodeRecord, expected: int) -> None:
        """Write a record, if nobody has meanwhile. Raises KernelError."""
        change = PutRecord(key_of(record.number), encode(record), expected)
        await self._client.administer(change)

    # --- Gateways ---------------------------------------------------------------------------

    def _drained(self) -> set[str]:
        """Names of the gateways that are to have no clients."""
        return {key[len(DRAINED) :] for key in self._client.records(DRAINED)}

    def _now_ms(self) -> int:
        """For the table of gateways, which is that of the leader of group 0. Raises KernelError
        NOT_LEADER.
        """
        try:
            self._led(METADATA_GROUP)
        except KernelError:
            self.gateways.clear()
            raise
        return self._clock.monotonic_ms()

    def _heartbeat_report(self, payload: bytes, reply: Reply) -> None:
        told = messages.unpack(payload, HeartbeatReport)
        drained = self._drained()
        orders = self.gateways.take_report(told, drained, self._now_ms())
        reply(messages.pack(replace(orders, shares=list(map(self._with_stored, orders.shares)))))

    def _with_stored(self, share: LimitShare) -> LimitShare:
        """Of a limit of what is stored: how much that is."""
        figures = self._store.topic_room.stored.figures(share.scope, share.tenant, share.name)
        for kind, amount in zip(STORED, figures, strict=True):
            if share.kind == kind.value:
                return replace(share, elsewhere=max(amount, 0))
        return share

    def _drain(self, payload: bytes, reply: Reply) -> None:
        asked = messages.unpack(payload, Drain)
        now_ms, drained = self._now_ms(), self._drained()
        if asked.undo != (asked.name in drained):
            if asked.undo:
                self.gateways.check_known(asked.name, now_ms)
            reply(messages.pack(StepProgress(True, "nothing changes")))
            return
        if not asked.undo:
            self.gateways.check_drain(asked.name, drained, now_ms)
        change = PutRecord(DRAINED + asked.name, None if asked.undo else b"")
        self._do(_answer(self._administer(change), reply))

    async def _administer(self, change: PutRecord) -> None:
        await self._client.administer(change)

    def _gateways(self, _payload: bytes, reply: Reply) -> None:
        now_ms = self._now_ms()
        reply(messages.pack(GatewayList(self.gateways.status(self._drained(), now_ms))))

    # --- Reports ----------------------------------------------------------------------------

    def _report(self, payload: bytes, reply: Reply) -> None:
        reply(messages.pack(self.report()))

    def report(self) -> Report:
        """What this store says of itself."""
        errors = {**self._links.errors(), **self._roster.refusals}
        connected = self._links.connected
        space = self._housekeeper.disk_space
        return Report(
            number=self._store.node,
            store=self._roster.store,
            version=self._version,
            uptime_ms=self._clock.monotonic_ms() - self._began_ms,
            draining=self.draining,
            accepting=self._client.accepting,
            connected=connected,
            errors={
                number: _cut(text) for number, text in errors.items() if number not in connected
            },
            problems={number: _cut(text) for number, text in self.problems.items()},
            groups=[self._group(each) for each in self._store.groups if self._store.holds(each)],
            left=[each for each in self._store.groups if self._store.has_nothing_of(each)],
            moving=self._moving(),
            heals=[int(each) for each in self._store.consensus.healing.lost],
            room=max(0, space.free_bytes - space.mark_bytes),
            replicas=self.replicas() if self._store.serving(METADATA_GROUP) else 0,
            short={group: _cut(text) for group, text in self.short.items()},
            unmended=[_cut(text) for text in self.unmended],
            added=self._added_status(),
            copy_rate=self._copy_rate(),
            receiving=self._receiving(),
            copy_setting=self._copy_setting,
        )

    def _receiving(self) -> list[SnapshotReport]:
        receiver = self._store.consensus.receiver
        if receiver is None:
            return []
        return [
            SnapshotReport(
                group=group,
                sender=each.sender,
                waits=not each.begun,
                file_bytes=each.file_bytes,
                file_bytes_total=each.file_bytes_total,
                entries=each.entries,
                entries_total=each.entries_total,
                bytes=each.bytes,
                rate=each.rate,
                seconds=each.seconds,
                rate_max=receiver.rate_max(group),
            )
            for group, each in receiver.progress.items()
        ]

    def _group(self, group: RaftGroup) -> GroupReport:
        member = self._store.member(group)
        core = member.core
        members = core.tracker.members
        load = self._loads.of(group)
        replicas = [
            ReplicaReport(
                each.node, each.node in members.voters, each.match, STATE_NAMES[each.state]
            )
            for each in core.tracker.peers
            if member.leads
        ]
        return GroupReport(
            group=group,
            term=core.term,
            leader=core.leader,
            serves=member.serves,
            last=core.log.last_index,
            commit=core.log.committed,
            applied=member.state.applied,
            voters=list(members.voters),
            learners=list(members.learners),
            joint=bool(members.voters_outgoing),
            replicas=replicas,
            written=load.written,
            sent=load.sent,
            live=load.live,
        )


def _cut(text: str) -> str:
    return text[: messages.TEXT_LENGTH_MAX]


async def _answer(work: Coroutine[object, object, None], reply: Reply) -> None:
    try:
        async with asyncio.timeout(REGISTER_SECONDS):
            await work
        reply(messages.pack(StepProgress(False, "is under way")))
    except KernelError as error:
        reply(error)
    except TimeoutError:
        reply(KernelError(Code.TIMEOUT, "the register could not be written in time"))


async def _answer_when(work: Coroutine[object, object, None], reply: Reply) -> None:
    """It takes as long as the disk does."""
    try:
        await work
        reply(messages.pack(StepProgress(True, "")))
    except KernelError as error:
        reply(error)


async def _answer_cut(work: Coroutine[object, object, CutTold], reply: Reply) -> None:
    try:
        reply(messages.pack(await work))
    except KernelError as error:
        reply(error)


async def _answer_flush(work: Coroutine[object, object, bool], reply: Reply) -> None:
    done = await work
    reply(
        messages.pack(StepProgress(done, "" if done else "what was counted could not be written"))
    )
