"""Looks after subscribers that nobody is connected to: deadlines, wills, what their end leaves.

A subscriber's record lives in one Raft group, the reference lists it reads in others, so leaving
them follows its end; `repair` compares all lists with all subscriptions after a crash. A share's
place on a list goes with the last of its members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from .broker import commands
from .broker import tree_commands as tree
from .broker.state import GroupState
from .broker.timers import Buckets
from .broker.tree_snapshot import index_queue
from .broker.tree_state import SubscriberChanged, SubscriberState, WillItem
from .client import PublishBatch
from .errors import KernelError
from .ids import RaftGroup
from .local_subscriber import LocalSubscriber, group_of
from .publish import Batch
from .store.node import Store
from .store.replica import Replica
from .topic_room import Rooms
from .topology import Topology
from .tree import Subscription

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
    room: Rooms

    @property
    def accepting(self) -> bool:
        """Whether there is room for new messages."""

    def submit(self, batch: PublishBatch) -> None:
        """Hand a batch over."""


Propose = Callable[[RaftGroup, commands.Control], Awaitable[object]]


class Keeper:
    """Deadlines, wills and leavings of all groups."""

    def __init__(self, store: Store, host: TreeHost, propose: Propose) -> None:
        self._store = store
        self._host = host
        self._propose = propose
        self._due = Buckets(DUE_WIDTH_MS)
        """Subscriber numbers, by the log time at which something may be to happen to them."""
        self._due_count = 0
        self._members: dict[tuple[str, Subscription], dict[object, None]] = {}
        """Who is in a share: numbers of durable subscribers, and other subscribers themselves."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: dict[RaftGroup, set[int]] = {}
        self._stopped = False

    # --- Life -------------------------------------------------------------------------------

    def learn(self, replica: Replica) -> None:
        """Take over what a group holds."""
        for subscriber in replica.state.subscribers.values():
            self._note_due(subscriber)
            for share, pattern in subscriber.subscriptions:
                if share:
                    self._add_member(subscriber.tenant, pattern, share, subscriber.number)

    async def repair(self) -> None:
        """Mend what a crash left half done: lists that nobody may read, or that are missing."""
        for replica in self._store.replicas():
            for number in list(replica.state.ended_subscribers):
                await self._leave_all(replica, replica.state.ended_subscribers[number])
        wanted: dict[tuple[str, str], set[str]] = {}
        for replica in self._store.replicas():
            for subscriber in replica.state.subscribers.values():
                for share, pattern in subscriber.subscriptions:
                    groups = wanted.setdefault((subscriber.tenant, pattern), set())
                    groups.add(group_of(subscriber.number, share))
        for replica in self._store.replicas():
            await self._repair_group(replica.group, replica.state, wanted)
        for replica in self._store.replicas():
            self.wills_grew(replica)

    async def _repair_group(
        self, group: RaftGroup, state: GroupState, wanted: dict[tuple[str, str], set[str]]
    ) -> None:
        routes = self._host.topology.tree
        for (tenant, pattern), ident in list(state.indexes.items()):
            present = set(state.queues[index_queue(ident)].groups)
            for name in sorted(present - wanted.get((tenant, pattern), set())):
                await self._propose(group, tree.LeaveIndex(tenant, pattern, name))
        for (tenant, pattern), names in wanted.items():
            if group not in routes.groups_of(tenant, pattern):
                continue
            known = state.indexes.get((tenant, pattern))
            queue = state.queues[index_queue(known)] if known is not None else None
            present = set(queue.groups) if queue is not None else set()
            for name in sorted(names - present):
                await self._propose(group, tree.JoinIndex(tenant, pattern, name))

    async def stop(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        self._stopped = True
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
        if not event.ended:
            self._note_due(event.subscriber)
        elif event.subscriber.subscriptions and not self._stopped:
            self._in_background(self._leave_all(replica, event.subscriber))

    def _note_due(self, subscriber: SubscriberState) -> None:
        self._add_due(subscriber)
        states = [each.state for each in self._store.replicas()]
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
        times = {each.group: each.log_time_ms() for each in self._store.replicas()}
        latest = max(times.values())
        for number in self._due.due(latest):
            self._due_count -= 1
            group = RaftGroup(number >> 40)
            replica = self._store.replica(group)
            subscriber = replica.state.subscribers.get(number)
            due_ms = subscriber.due_ms() if subscriber is not None else None
            if subscriber is None or due_ms is None:
                continue
            if due_ms <= times[group]:
                replica.propose(tree.SubscriberDue(number, subscriber.epoch), (0, 0, 0), None)
            elif due_ms <= latest:
                self._add_due(subscriber)
        for replica in self._store.replicas():
            self.wills_grew(replica)
            self._forget_expired(replica)

    @staticmethod
    def _forget_expired(replica: Replica) -> None:
        names: dict[str, list[str]] = {}
        for tenant, name in replica.state.retained.expired(replica.log_time_ms()):
            names.setdefault(tenant, []).append(name)
        for tenant, each in names.items():
            replica.propose(tree.ForgetRetained(tenant, tuple(each)), (0, 0, 0), None)

    # --- Reference lists --------------------------------------------------------------------

    def _add_member(self, tenant: str, pattern: str, share: str, member: object) -> None:
        key = (tenant, Subscription(pattern, share))
        self._members.setdefault(key, {})[member] = None

    def join(self, subscriber: LocalSubscriber, subscription: Subscription) -> None:
        """A subscriber is about to be a member of a share."""
        if subscription.share:
            member = subscriber.number if subscriber.durable else subscriber
            self._add_member(subscriber.tenant, subscription.pattern, subscription.share, member)

    async def leave(
        self, number: int, subscriber: LocalSubscriber, subscription: Subscription
    ) -> None:
        """A subscription is over: leave its reference lists, a share as its last member."""
        member = number if subscriber.durable else subscriber
        await self._leave(subscriber.tenant, number, member, subscription)

    async def _leave(
        self, tenant: str, number: int, member: object, subscription: Subscription
    ) -> None:
        if subscription.share:
            key = (tenant, subscription)
            members = self._members.get(key, {})
            members.pop(member, None)
            if members:
                return
            self._members.pop(key, None)
        group = group_of(number, subscription.share)
        change = tree.LeaveIndex(tenant, subscription.pattern, group)
        groups = self._host.topology.tree.groups_of(tenant, subscription.pattern)
        await asyncio.gather(*(self._propose(each, change) for each in groups))

    async def _leave_all(self, replica: Replica, ended: SubscriberState) -> None:
        for share, pattern in list(ended.subscriptions):
            subscription = Subscription(pattern, share)
            await self._leave(ended.tenant, ended.number, ended.number, subscription)
        await self._propose(replica.group, tree.SubscriberLeft(ended.number))

    def left(self, subscriber: LocalSubscriber) -> None:
        """A subscriber that lived in memory was taken over."""
        if not subscriber.durable:
            self._in_background(self.left_for_good(subscriber))

    async def left_for_good(self, subscriber: LocalSubscriber) -> None:
        """A subscriber that lived in memory is over: leave its shares."""
        for subscription in list(subscriber.subscriptions):
            await self._leave(subscriber.tenant, 0, subscriber, subscription)
        subscriber.subscriptions.clear()

    # --- Wills ------------------------------------------------------------------------------

    def wills_grew(self, replica: Replica) -> None:
        """Publish the wills that are due and not on their way."""
        if not replica.state.wills or self._stopped:
            return
        sending = self._sending.setdefault(replica.group, set())
        for number, item in replica.state.wills.items():
            if len(sending) >= WILLS_IN_FLIGHT_MAX:
                return
            if number not in sending:
                sending.add(number)
                self._send(replica, item)

    def _send(self, replica: Replica, item: WillItem) -> None:
        batch = Batch(self._host, _WillSink(self, replica, item.number), item.will.slot[1])
        batch.identity = (WILL_CLIENT | replica.group, 1, item.number)
        found = self._host.topology.tree.to(item.tenant, item.will.name, retain=item.will.retain)
        if found.count:
            batch.add(found, (item.will.slot,), len(item.will.slot))
        self._host.submit(batch)

    def sent(self, replica: Replica, number: int, *, stored: bool) -> None:
        """A will has been published, or refused: then it is tried again within a second."""
        sending = self._sending[replica.group]
        if not stored:
            sending.discard(number)
            return
        replica.propose(tree.WillSent(number), (0, 0, 0), lambda _: sending.discard(number))


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
