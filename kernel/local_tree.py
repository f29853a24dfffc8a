"""The topic tree of a gateway that has the store in its own process.

Durability: the awaitables of a durable subscriber return from the apply of entries that are
fdatasynced; a watch, and a subscriber that ends with its connection, live in memory only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .broker import tree_commands as tree
from .broker.retained import RetainedMessage
from .broker.tree_state import IndexChanged, SubscriberChanged, SubscriberState, TreeEvent
from .client import Destinations
from .errors import Code, KernelError
from .ids import RaftGroup
from .limits import MARK_AHEAD, NAME_BYTES_MAX, RETAINED_MAX, WILL_BYTES_MAX
from .local_subscriber import Changes, LocalSubscriber, group_of
from .log import entry as entries
from .model import QueueRef
from .placement import home_group
from .proposer import Proposer, first_of
from .store.node import Store
from .store.replica import Replica
from .subscriber_keeper import Keeper, TreeHost
from .tree import Subscriber, SubscriberSink, SubscriberSpec, Subscription, Watch, WatchSink
from .tree_table import check_name, check_pattern
from .turns import Turns
from .watches import LocalWatch

_SUBSCRIBER = "subscriber\0"
"""Before a subscriber's name when its home is looked for: apart from topics of that name."""


class LocalTree:
    """`tree.Tree` over a `Store` in this process."""

    def __init__(
        self,
        store: Store,
        host: TreeHost,
        loop: asyncio.AbstractEventLoop,
        proposer: Proposer,
    ) -> None:
        self._store = store
        self._host = host
        self._loop = loop
        self._routes = host.topology.tree
        self._proposer = proposer
        self._propose = proposer.propose
        self._turns = Turns()
        self._open: dict[tuple[str, str], LocalSubscriber] = {}
        """The subscriber of each name that a connection has."""
        self._keeper = Keeper(store, host, self._propose)

    # --- Life -------------------------------------------------------------------------------

    def learn(self, replica: Replica) -> None:
        """Take over what a group holds."""
        for (tenant, pattern), ident in replica.state.indexes.items():
            self._routes.add_index(tenant, pattern, replica.state.topics[ident].refs[0])
        self._keeper.learn(replica)

    async def repair(self) -> None:
        """Mend what a crash left half done."""
        await self._keeper.repair()

    async def stop(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self._keeper.stop()

    def each_second(self) -> None:
        """Look after deadlines."""
        self._keeper.each_second()

    def changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the tree was applied."""
        if isinstance(event, IndexChanged):
            if event.removed:
                self._routes.remove_index(event.tenant, event.pattern, replica.group)
            else:
                ref = replica.state.topics[event.topic].refs[0]
                self._routes.add_index(event.tenant, event.pattern, ref)
        elif isinstance(event, SubscriberChanged):
            self._fence(event.subscriber, ended=event.ended)
            self._keeper.subscriber_changed(replica, event)
        else:
            self._keeper.wills_grew(replica)

    def _fence(self, state: SubscriberState, *, ended: bool) -> None:
        """Tell the connection that had a subscriber until now, if another epoch has it."""
        known = self._open.get((state.tenant, state.name))
        if known is None or known.number != state.number or known.closed:
            return
        if ended or known.epoch != state.epoch:
            self._take_over(known)

    def _take_over(self, known: LocalSubscriber) -> None:
        self._open.pop((known.tenant, known.name), None)
        known.fenced = True
        known.sink.taken_over(known)

    # --- Publishing -------------------------------------------------------------------------

    def to(self, tenant: str, name: str, *, retain: bool = False) -> Destinations:
        """Destinations of a publish to a name."""
        found = self._routes.to(tenant, name, retain=retain)
        if retain:
            self._check_retained(tenant, name)
        return found

    def _check_retained(self, tenant: str, name: str) -> None:
        state = self._store.replica(self._routes.group_of(tenant, name)).state
        most = RETAINED_MAX // len(self._store.data_groups)
        if state.retained.count(tenant) >= most and state.retained.get(tenant, name) is None:
            raise KernelError(Code.LIMIT_EXCEEDED, f"a tenant has {RETAINED_MAX} retained messages")

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object = None) -> Watch:
        """A live route."""
        check_pattern(pattern)
        watch = LocalWatch(tenant, pattern, sink, tag, self._unwatch)
        self._routes.add_watch(tenant, pattern, watch)
        return watch

    def _unwatch(self, watch: LocalWatch) -> None:
        self._routes.remove_watch(watch.tenant, watch.pattern, watch)

    # --- Retained messages ------------------------------------------------------------------

    async def retained(
        self, tenant: str, pattern: str, messages_max: int
    ) -> Sequence[tuple[int, bytes]]:
        """(age ms, slot) of the retained messages under a pattern."""
        check_pattern(pattern)
        found: list[tuple[str, Replica, RetainedMessage]] = []
        for group in self._routes.groups_of(tenant, pattern):
            replica = self._store.replica(group)
            now = replica.log_time_ms()
            for name, kept in replica.state.retained.match(tenant, pattern):
                if not kept.has_expired(now):
                    found.append((name, replica, kept))
                if len(found) > messages_max:
                    raise KernelError(
                        Code.LIMIT_EXCEEDED,
                        f"more than {messages_max} retained messages match {pattern}",
                    )
        found.sort(key=lambda each: each[0])
        messages: list[tuple[int, bytes]] = []
        for name, replica, kept in found:
            slot = await self._slot(replica, tenant, name, kept)
            if slot:
                messages.append((max(0, replica.log_time_ms() - kept.time_ms), slot))
        return messages

    async def _slot(self, replica: Replica, tenant: str, name: str, kept: RetainedMessage) -> bytes:
        """A retained message; empty if it has been replaced while others were read."""
        while (entry := self._store.entry(replica.group, kept.index)) is None:
            if replica.state.retained.get(tenant, name) is not kept:
                return b""
            await self._store.fetched(replica.group, kept.index)
        return entries.slot(entry, kept.slot)

    # --- Subscribers ------------------------------------------------------------------------

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return home_group(self._store.data_groups, tenant, _SUBSCRIBER + name)

    async def open(self, spec: SubscriberSpec, sink: SubscriberSink) -> Subscriber:
        """Open a subscriber."""
        if not spec.name or len(spec.name.encode()) > NAME_BYTES_MAX:
            raise KernelError(
                Code.INVALID_ARGUMENT, f"a subscriber's name has 1 to {NAME_BYTES_MAX} bytes"
            )
        if spec.will is not None:
            check_name(spec.will.name)
            if len(spec.will.slot) > WILL_BYTES_MAX:
                raise KernelError(
                    Code.TOO_LARGE, f"a will has at most {WILL_BYTES_MAX} bytes with its properties"
                )
        key = (spec.tenant, spec.name)
        async with self._turns.of(key):
            subscriber = LocalSubscriber(self, self._store, spec, sink)
            await self._carry_on(subscriber, spec)
            known = self._open.get(key)
            if known is not None:
                self._take_over(known)
                self._keeper.left(known)
            self._open[key] = subscriber
            return subscriber

    async def _carry_on(self, subscriber: LocalSubscriber, spec: SubscriberSpec) -> None:
        """Open it in the log, unless nothing of it must be there. On a disk that is nearly full
        nothing new comes into being, but what waits for a known one can be consumed.
        """
        home = self._home(spec.tenant, spec.name)
        known = (spec.tenant, spec.name) in self._store.replica(home).state.subscriber_names
        keeps = spec.expiry_ms != 0 or spec.will is not None
        if keeps and not known and not self._host.accepting:
            raise KernelError(Code.NO_SPACE, "free disk is below the mark for new messages")
        if keeps or (known and not spec.clean):
            opened = await self._propose(
                home,
                tree.OpenSubscriber(
                    spec.tenant,
                    spec.name,
                    spec.clean,
                    spec.expiry_ms,
                    tree.WillRecord.of(spec.will),
                ),
            )
            assert isinstance(opened, tree.Opened)
            subscriber.opened(home, opened)
        elif known:
            await self._propose(home, tree.EndSubscriber(spec.tenant, spec.name))

    def lists_of(self, tenant: str, pattern: str) -> Sequence[QueueRef]:
        """The reference lists of a pattern."""
        return self._routes.indexes_of(tenant, pattern)

    async def subscribe(
        self, subscriber: LocalSubscriber, subscription: Subscription, options: bytes
    ) -> bool:
        """Subscribe; on disk, in all groups concerned, when it returns."""
        check_pattern(subscription.pattern)
        _check_share(subscription.share)
        if not subscriber.durable and not subscription.share:
            raise KernelError(Code.INVALID_ARGUMENT, "the subscriber ends with its connection")
        async with self._turns.of(subscriber.number or subscriber):
            _check_open(subscriber)
            is_new = subscription not in subscriber.subscriptions
            waiting = []
            if is_new:
                self._keeper.join(subscriber, subscription)
                group = group_of(subscriber.number, subscription.share)
                join = tree.JoinIndex(subscriber.tenant, subscription.pattern, group, MARK_AHEAD)
                groups = self._routes.groups_of(subscriber.tenant, subscription.pattern)
                waiting = [self._proposer.begin(each, join) for each in groups]
            if subscriber.durable:
                waiting.append(
                    self._proposer.begin(
                        subscriber.home,
                        tree.PutSubscription(
                            subscriber.number,
                            subscriber.epoch,
                            subscription.share,
                            subscription.pattern,
                            options,
                        ),
                    )
                )
            results = [await each for each in waiting]
            errors = [each for each in results if isinstance(each, KernelError)]
            if errors:
                if is_new:
                    await self._keeper.leave(subscriber.number, subscriber, subscription)
                raise errors[0]
            subscriber.subscriptions[subscription] = options
            return is_new

    async def unsubscribe(self, subscriber: LocalSubscriber, subscription: Subscription) -> bool:
        """End a subscription; on disk when it returns."""
        async with self._turns.of(subscriber.number or subscriber):
            _check_open(subscriber)
            if subscription not in subscriber.subscriptions:
                return False
            if subscriber.durable:
                await self._propose(
                    subscriber.home,
                    tree.DeleteSubscription(
                        subscriber.number,
                        subscriber.epoch,
                        subscription.share,
                        subscription.pattern,
                    ),
                )
            del subscriber.subscriptions[subscription]
            await self._keeper.leave(subscriber.number, subscriber, subscription)
            return True

    def note(
        self,
        subscriber: LocalSubscriber,
        changes: Changes,
        done: Callable[[KernelError | None], None] | None,
    ) -> None:
        """Set or remove notes."""
        if subscriber.fenced or not subscriber.durable:
            if done is not None:
                error = None if not subscriber.fenced else _fenced()
                self._loop.call_soon(done, error)
            return

        def noted(results: object) -> None:
            result = first_of(results)
            if done is not None:
                done(result if isinstance(result, KernelError) else None)

        change = tree.NoteSubscriber(subscriber.number, subscriber.epoch, tuple(changes))
        identity = self._proposer.next_identity()
        self._proposer.send(
            subscriber.home, lambda leader, heard: leader.propose(change, identity, heard), noted
        )

    async def close(
        self, subscriber: LocalSubscriber, will: bool, expiry_ms: int | None, notes: Changes
    ) -> None:
        """The connection is over; on disk when it returns, if it is durable."""
        key = (subscriber.tenant, subscriber.name)
        if subscriber.closed or subscriber.fenced:
            return
        subscriber.closed = True
        if self._open.get(key) is subscriber:
            del self._open[key]
        if not subscriber.durable:
            await self._keeper.left_for_good(subscriber)
            return
        await self._propose(
            subscriber.home,
            tree.CloseSubscriber(
                subscriber.number,
                subscriber.epoch,
                will,
                expiry_ms != -1,
                None if expiry_ms == -1 else expiry_ms,
                tuple(notes),
            ),
        )


def _check_share(share: str) -> None:
    if len(share.encode()) > NAME_BYTES_MAX - len("share/"):
        raise KernelError(Code.INVALID_ARGUMENT, "the name of a share is too long")


def _fenced() -> KernelError:
    return KernelError(Code.SESSION_FENCED, "the subscriber has another connection")


def _check_open(subscriber: LocalSubscriber) -> None:
    if subscriber.fenced or subscriber.closed:
        raise _fenced()
