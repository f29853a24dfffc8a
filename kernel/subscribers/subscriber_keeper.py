"""Looks after subscribers that nobody is connected to: deadlines, wills, what their end leaves.

A subscriber's record lives in one Raft group, the reference lists it reads in others, so leaving
them follows its end; `repair` compares a group's lists with all subscriptions when its leader
begins. All of it is a task of the group's leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from typing import Protocol

from ..api.client import PublishBatch
from ..api.tree import Subscription, WillJudge
from ..broker.delivery.due_times import Buckets
from ..broker.group_state.state import GroupState
from ..broker.group_state.tree_state import SubscriberChanged, SubscriberState, WillItem
from ..broker.log_commands import tree_commands as tree
from ..broker.snapshots.tree_snapshot import index_queue
from ..common.errors import KernelError
from ..common.ids import RaftGroup
from ..requests.peer_stores import WANTED_READERS_MAX, ListReader, PeerStores
from ..requests.proposer import Proposer
from ..requests.publish import ProducerBatch
from ..routing.topology import Topology
from ..store.leading.needless import needless
from ..store.node import Store
from ..store.replicas.replica import Replica
from .list_readers import Readers, homes_of, unwanted_in, wanted_by
from .subscribing import leaving, slices

WILLS_IN_FLIGHT_MAX = 256
"""Wills of one group on their way at once: bounds memory, and is many syncs deep."""

WILL_CLIENT = 3 << 62
"""Client number of a group's wills is this plus the group: nobody else's."""

DUE_SLACK = 1_024
"""Deadlines are collected anew when there are so many more than twice the subscribers: those that
no longer hold are not taken out."""

DUE_WIDTH_MS = 500
"""So much later than due, at most, a deadline is looked at, beside the second between two looks."""


class TreeHost(Protocol):
    """What the tree asks of the client in this process."""

    topology: Topology
    uid_high: int
    next_uid: int

    @property
    def identity(self) -> int:
        """Number of this process."""

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""

    @property
    def accepting(self) -> bool:
        """Whether there is room for new messages."""

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over."""


STOP_SECONDS = 2.0
"""What is left behind by subscribers is left by the next leader, if other stores do not answer for
so long at an orderly stop."""


class Keeper:
    """Deadlines, wills and leavings of all groups."""

    def __init__(self, store: Store, host: TreeHost, proposer: Proposer) -> None:
        self._store = store
        self._host = host
        self._propose = proposer.propose
        self._begin_all = proposer.begin_all
        self._due = Buckets(DUE_WIDTH_MS)
        """Subscriber numbers, by the log time at which something may be to happen to them."""
        self._due_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: dict[RaftGroup, set[int]] = {}
        self._unwanted: dict[RaftGroup, set[ListReader]] = {}
        """Of each group led here what nobody was to read when it was looked at last."""
        self._stopped = False
        self.peer_stores: PeerStores | None = None
        """The other stores of a cluster."""
        self.judge: WillJudge = lambda _tenant, _user, _client, _name: True
        """Asked of wills that are somebody's, when they are due."""

    # --- Life -------------------------------------------------------------------------------

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on: take over what it holds."""
        self._unwanted.pop(replica.group, None)
        self._sending.pop(replica.group, None)
        for subscriber in replica.state.subscribers.values():
            self._note_due(subscriber)
        if replica.state.ended_subscribers:
            self._in_background(self._leave_ended(replica))
        self.wills_grew(replica)

    async def _leave_ended(self, replica: Replica) -> None:
        for ended in list(replica.state.ended_subscribers.values()):
            await self._leave_all(replica, ended)

    async def repair(self, groups: Collection[RaftGroup]) -> bool:
        """Mend what a crash left half done in groups that are led here: lists that are missing, or
        that nobody may read. Such a list is left at once where every group is led and no client is
        connected yet; else if it is seen twice, since somebody may be about to have it. Of who has
        its home in a group that this store has no replica of the leader of that group is asked:
        without an answer what it reads stays. Whether there is more to be seen in a while: a
        subscription may have ended just as its list was mended, or begun just as it was left.
        """
        wanted = wanted_by(self._store.replicas())
        again = False
        for group in groups:
            state = self._store.replica(group).state
            unwanted = await self._wanted_by_nobody(unwanted_in(state, wanted))
            twice = self._unwanted.get(group, set()) if not self._store.is_alone else unwanted
            for each in sorted(unwanted & twice):
                await self._propose(group, tree.LeaveIndex(*each))
            mended = await self._join_missing(group, state, wanted)
            # Noted in the end: a look that has to be begun again is none.
            self._unwanted[group] = unwanted - twice
            again |= mended or bool(unwanted)
        return again

    async def _wanted_by_nobody(self, readers: set[ListReader]) -> set[ListReader]:
        """Those of the readers, whom no subscriber wants that is known here, whom nobody else wants
        either.
        """
        homes = self._store.home_groups
        elsewhere: dict[RaftGroup, list[ListReader]] = {}
        for reader in readers:
            for home in homes_of(reader, homes):
                if not self._store.holds(home):
                    elsewhere.setdefault(home, []).append(reader)
        found = set(readers)
        for home, asked in elsewhere.items():
            found -= await self._wanted_at(home, sorted(asked))
        return found

    async def _wanted_at(self, home: RaftGroup, readers: list[ListReader]) -> set[ListReader]:
        """Whom of the readers a home wants whose leader is another store; all that it does not
        answer for.
        """
        wanted = set(readers)
        for at in range(0, len(readers), WANTED_READERS_MAX):
            asked = readers[at : at + WANTED_READERS_MAX]
            try:
                if self.peer_stores is not None:
                    wanted -= set(asked) - await self.peer_stores.wanted(home, asked)
            except KernelError:
                continue
        return wanted

    async def _join_missing(self, group: RaftGroup, state: GroupState, wanted: Readers) -> bool:
        """Join lists that a subscriber should be in; whether there were any."""
        routes = self._host.topology.tree
        joins = [
            tree.JoinIndex(tenant, pattern, name, 0, member, epoch)
            for (tenant, pattern), names in wanted.items()
            if group in routes.groups_of(tenant, pattern)
            for name, joined in names.items()
            for member, epoch in joined
        ]
        missing = [each for each in joins if needless(state, each, state.time_ms) is None]
        for join in missing:
            await self._propose(group, join)
        return bool(missing)

    async def stop(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        self._stopped = True
        if self._tasks and not self._store.is_alone:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in self._tasks:
                task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        """Do what nobody waits for. What fails is done by `repair` at the next start."""

        async def run() -> None:
            try:
                await work
            except KernelError:
                return

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Deadlines --------------------------------------------------------------------------

    def subscriber_changed(self, replica: Replica, event: SubscriberChanged) -> None:
        """A subscriber was opened, closed or has ended."""
        if not replica.leading:
            return
        if not event.ended:
            self._note_due(event.subscriber)
        elif event.subscriber.subscriptions and not self._stopped:
            self._in_background(self._leave_all(replica, event.subscriber))

    def _note_due(self, subscriber: SubscriberState) -> None:
        self._add_due(subscriber)
        states = [each.state for each in self._led()]
        if self._due_count > 2 * sum(len(each.subscribers) for each in states) + DUE_SLACK:
            self._due, self._due_count = Buckets(DUE_WIDTH_MS), 0
            for state in states:
                for each in state.subscribers.values():
                    self._add_due(each)

    def _add_due(self, subscriber: SubscriberState) -> None:
        due_ms = subscriber.due_ms()
        if due_ms is not None:
            self._due.add(subscriber.number, due_ms)
            self._due_count += 1

    def each_second(self) -> None:
        """Propose what is due, by the log time of the subscriber's group; send wills again that
        were refused; forget retained messages that have expired.
        """
        times = {each.group: each.log_time_ms() for each in self._led()}
        latest = max(times.values(), default=0)
        for number in self._due.due(latest):
            self._due_count -= 1
            group = RaftGroup(number >> 40)
            if group not in times:
                continue  # whoever leads it now knows
            replica = self._store.replica(group)
            subscriber = replica.state.subscribers.get(number)
            due_ms = subscriber.due_ms() if subscriber is not None else None
            if subscriber is None or due_ms is None:
                continue
            if due_ms <= times[group]:
                replica.propose(tree.SubscriberDue(number, subscriber.epoch), (0, 0, 0), None)
            elif due_ms <= latest:
                self._add_due(subscriber)
        for replica in self._led():
            self.wills_grew(replica)
            self._forget_expired(replica)

    def _led(self) -> list[Replica]:
        return [each for each in self._store.replicas() if each.serving]

    @staticmethod
    def _forget_expired(replica: Replica) -> None:
        names: dict[str, list[str]] = {}
        for tenant, name in replica.state.retained.expired(replica.log_time_ms()):
            names.setdefault(tenant, []).append(name)
        for tenant, each in names.items():
            replica.propose(tree.ForgetRetained(tenant, tuple(each)), (0, 0, 0), None)

    # --- What is left behind ----------------------------------------------------------------

    async def _leave_all(self, replica: Replica, ended: SubscriberState) -> None:
        """A subscriber has ended: leave its reference lists."""
        routes, who = self._host.topology.tree, ((0, ended.number), ended.epoch)
        for some in slices(
            [Subscription(pattern, share) for share, pattern in ended.subscriptions]
        ):
            by_group: dict[RaftGroup, list[tree.LeaveIndex]] = {}
            for each in some:
                change = leaving(ended.tenant, each, ended.number, *who)
                for group in routes.groups_of(ended.tenant, each.pattern):
                    by_group.setdefault(group, []).append(change)
            begun = [self._begin_all(*batch) for batch in by_group.items()]
            for results in [await each for each in begun]:
                error = next((each for each in results if isinstance(each, KernelError)), None)
                if error is not None:
                    raise error
        await self._propose(replica.group, tree.SubscriberLeft(ended.number))

    def owners_in(self, replica: Replica) -> set[int]:
        """Owners of what is open in a group, and of members of shares."""
        open_now = {each.owner for each in replica.state.subscribers.values() if each.connected}
        return {*open_now, *(member[0] for *_, member in _members(replica))} - {0}

    def end_owner(self, replica: Replica, owner: int) -> None:
        """A process is gone: close what it had open, with wills; its memberships end."""
        for subscriber in list(replica.state.subscribers.values()):
            if subscriber.connected and subscriber.owner == owner:
                close = tree.CloseSubscriber(
                    subscriber.number, subscriber.epoch, True, False, None, ()
                )
                replica.propose(close, (0, 0, 0), None)
        for key, group, member in list(_members(replica)):
            if member[0] == owner:
                replica.propose(tree.LeaveIndex(*key, group, member), (0, 0, 0), None)

    # --- Wills ------------------------------------------------------------------------------

    def wills_grew(self, replica: Replica) -> None:
        """Publish the wills that are due and not on their way."""
        if not replica.state.wills or self._stopped or not replica.serving:
            return
        sending = self._sending.setdefault(replica.group, set())
        for number, item in replica.state.wills.items():
            if len(sending) >= WILLS_IN_FLIGHT_MAX:
                return
            if number in sending:
                continue
            will = item.will
            may = not will.user or self.judge(item.tenant, will.user, will.client, will.name)
            if may is None:
                continue
            sending.add(number)
            if may:
                self._send(replica, item)
            else:
                self.sent(replica, number, stored=True)

    def _send(self, replica: Replica, item: WillItem) -> None:
        batch = ProducerBatch(self._host, _WillSink(self, replica, item.number), item.will.slot[1])
        batch.identity = (WILL_CLIENT | replica.group, 1, item.number)
        try:
            found = self._host.topology.tree.to(
                item.tenant, item.will.name, retain=item.will.retain
            )
        except KernelError:
            # An older build took wills for names that are the server's own.
            self.sent(replica, item.number, stored=True)
            return
        if found.count:
            batch.add(found, (item.will.slot,), len(item.will.slot))
        self._host.submit(batch)

    def sent(self, replica: Replica, number: int, *, stored: bool) -> None:
        """A will has been published or is withheld, or was refused: then it is tried again within a
        second.
        """
        sending = self._sending.get(replica.group, set())
        if not stored:
            sending.discard(number)
            return
        replica.propose(tree.WillSent(number), (0, 0, 0), lambda _: sending.discard(number))


def _members(replica: Replica) -> Iterator[tuple[tuple[str, str], str, tuple[int, int]]]:
    """((tenant, pattern), group, member) of every member of a share."""
    state = replica.state
    for key, ident in state.indexes.items():
        for group, progress in state.queues[index_queue(ident)].groups.items():
            for member in progress.members:
                yield key, group, member


class _WillSink:
    """Hears of one will's publication."""

    __slots__ = ("_keeper", "_number", "_replica")

    def __init__(self, keeper: Keeper, replica: Replica, number: int) -> None:
        self._keeper = keeper
        self._replica = replica
        self._number = number

    def published(self, batch: PublishBatch) -> None:
        """See `client.PublishSink`."""
        self._keeper.sent(self._replica, self._number, stored=not batch.failures)
