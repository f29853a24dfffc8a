"""What connections of this process do with subscribers of the topic tree: the client's half.

It knows no Raft group's state: every command decides for itself where it is applied, and what it
came to is the answer. A subscriber's record is in the group of its name, what is kept for it in
the groups of the names it wants (ADR 9).

    open          home                         epoch + 1: what an older connection says is refused
    subscribe     groups of the pattern, home  so that what home knows of is kept everywhere
    unsubscribe   home, groups of the pattern
    note, close   home

Durability: the awaitables of a durable subscriber return from the apply of entries that a majority
has fdatasynced; one that ends with its connection lives in memory only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ..api.client import ConsumerSink, Session
from ..api.tree import (
    Subscriber,
    SubscriberConsumer,
    SubscriberSink,
    SubscriberSpec,
    Subscription,
    anothers,
    belongs_to,
)
from ..broker.log_commands import tree_commands as tree
from ..broker.log_commands.commands import Control
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.keyed_lock import KeyedLock
from ..common.limits import MARK_AHEAD, NAME_BYTES_MAX, WILL_BYTES_MAX
from ..common.placement import home_group
from ..requests.proposer import Proposer, first_of
from ..routing.tree_routes import TreeRoutes
from ..routing.tree_table import check_name, check_pattern
from .held_subscriber import Changes, HeldSubscriber, group_of

_SUBSCRIBER = "subscriber\0"
"""Before a subscriber's name when its home is looked for: apart from topics of that name."""

OPEN_TRIES = 3
"""A group that a snapshot has brought to a new leader knows that it has opened a subscriber, but
not as what: then it is opened once more."""

LOST_KEPT_MAX = 4_096
"""Connections lost to others that may not have been told yet that they had been opened."""

TOGETHER_MAX = 256
"""Subscriptions that are changed in one go, where somebody has very many: a batch of commands of
each Raft group, whose apply takes a few milliseconds."""

TOGETHER_CHARACTERS_MAX = 256 * 1024
"""Characters of their patterns: some may be very long."""

FORGOTTEN_TOGETHER = 1_000
"""Subscribers, and retained messages, of a tenant that is removed that one command ends in a Raft
group: milliseconds of its apply."""

Consuming = Callable[[HeldSubscriber, Session, ConsumerSink], SubscriberConsumer]


class Owner(Protocol):
    """The process, as subscribers see it."""

    @property
    def accepting(self) -> bool:
        """Whether there is room for something new."""

    @property
    def owner(self) -> int:
        """Its number, by which leaders know whose connections a subscriber's are; 0: it is the
        process of all the leaders.
        """


class Claims(Protocol):
    """What tells other processes that a client has connected here."""

    async def open(self, tenant: str, name: str, user: str, *, holds: bool) -> None:
        """Return once its connection elsewhere has been told, if it has one that lives in memory.
        `holds`: this one does. Raises KernelError SESSION_FENCED, UNAVAILABLE; NOT_ALLOWED, it
        is another user's.
        """

    async def drop(self, tenant: str, name: str) -> bool:
        """Have its connection elsewhere told, whosever it is; whether it has one that lives in
        memory. Raises KernelError UNAVAILABLE.
        """

    def holds(self, tenant: str, name: str) -> bool:
        """Whether one that was held still is: no other connection has been opened since."""

    def close(self, tenant: str, name: str) -> None:
        """One that was held is over, or need not be held."""


class Subscribing:
    """Subscribers that connections of this process have. `held_subscriber.SubscriberHost`."""

    def __init__(
        self,
        process: Owner,
        groups: Sequence[RaftGroup],
        routes: TreeRoutes,
        proposer: Proposer,
        consumer: Consuming,
    ) -> None:
        """`groups`: those that names have their home in; `consumer(subscriber, session, sink)`
        makes a `SubscriberConsumer`.
        """
        self._process = process
        self._groups = groups
        self._routes = routes
        self._proposer = proposer
        self._consumer = consumer
        self.claims: Claims | None = None
        """How other processes hear of a name that was opened; None: there are none."""
        self._loop = asyncio.get_running_loop()
        self._keyed_lock = KeyedLock()
        self._open: dict[tuple[str, str], HeldSubscriber] = {}
        """The subscriber of each name that a connection has."""
        self._numbers: dict[int, HeldSubscriber] = {}
        """The durable ones of these."""
        self._lost: dict[int, int] = {}
        """Highest epoch that is known to be lost, by number, of some that were not open here."""
        self._next = 1
        self._tasks: set[asyncio.Task[None]] = set()

    # --- Life -------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Return when what was begun is done."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        async def run() -> None:
            try:
                await work
            except KernelError:
                return  # its leader sweeps what is left

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Takeover ---------------------------------------------------------------------------

    def opened_in(self, group: RaftGroup) -> list[tuple[int, int]]:
        """(number, epoch) of the durable ones of a group."""
        return [(each.number, each.epoch) for each in self._numbers.values() if each.home == group]

    def lost(self, number: int, epoch: int) -> None:
        """The connection that has opened a durable one with this epoch has it no more."""
        known = self._numbers.get(number)
        if known is None:
            if len(self._lost) >= LOST_KEPT_MAX:
                del self._lost[next(iter(self._lost))]
            self._lost[number] = max(epoch, self._lost.get(number, 0))
        elif known.epoch <= epoch:
            self._take_over(known)

    def lost_name(self, tenant: str, name: str) -> None:
        """Somebody elsewhere has opened a name: what lives in the memory of this process ends."""
        known = self._open.get((tenant, name))
        if known is not None and not known.durable:
            self._take_over(known)
            self._in_background(self._leave_shares(known))

    def _take_over(self, known: HeldSubscriber) -> None:
        self._forget(known)
        known.fenced = True
        known.sink.taken_over(known)

    def _forget(self, known: HeldSubscriber) -> None:
        key = (known.tenant, known.name)
        if self._open.get(key) is known:
            del self._open[key]
        if self._numbers.get(known.number) is known:
            del self._numbers[known.number]

    # --- Open and close -----------------------------------------------------------------------

    def home_of(self, tenant: str, name: str) -> RaftGroup:
        """Raft group that has the record of a subscriber."""
        return home_of_client(self._groups, tenant, name)

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
        self._next += 1
        subscriber = HeldSubscriber(self, spec, sink, (self._process.owner, self._next))
        async with self._keyed_lock.of(key):
            known = self._open.get(key)
            if known is not None and not belongs_to(known.user, spec.user):
                raise anothers()
            await self._claim(subscriber, spec)
            # Not before: who cannot have the name takes it from nobody.
            self._lose(key)
            if subscriber.durable:
                # The log may have told of a later connection before its answer to this one came.
                if self._lost.pop(subscriber.number, 0) >= subscriber.epoch:
                    raise _fenced()
                self._numbers[subscriber.number] = subscriber
            self._open[key] = subscriber
            return subscriber

    def _lose(self, key: tuple[str, str]) -> bool:
        """A connection of this process has a name no more; whether one had it."""
        known = self._open.get(key)
        if known is None:
            return False
        self._take_over(known)
        if not known.durable:
            self._in_background(self._leave_shares(known))
        return True

    async def drop(self, tenant: str, name: str) -> bool:
        """End a subscriber, whosever it is; whether there was one."""
        key = (tenant, name)
        async with self._keyed_lock.of(key):
            end = tree.EndSubscriber(tenant, name, anyones=True)
            ended = bool(await self._proposer.propose(self.home_of(tenant, name), end))
            elsewhere = self.claims is not None and await self.claims.drop(tenant, name)
            return self._lose(key) or ended or elsewhere

    async def forget(self, tenant: str) -> int:
        """Have each home group let go of some of what a tenant has in the tree; what remains."""
        change = tree.ForgetTenant(tenant, FORGOTTEN_TOGETHER)
        begun = [self._proposer.begin(group, change) for group in self._groups]
        remaining = 0
        for result in [await each for each in begun]:
            if isinstance(result, KernelError):
                raise result
            assert isinstance(result, int), "the command says how many things remain"
            remaining += result
        for key in [each for each in self._open if each[0] == tenant]:
            self._lose(key)
        return remaining

    async def _claim(self, subscriber: HeldSubscriber, spec: SubscriberSpec) -> None:
        """Have the name, here and in the log."""
        claims, key = self.claims, (spec.tenant, spec.name)
        holds = spec.expiry_ms == 0 and spec.will is None
        if claims is not None:
            await claims.open(*key, spec.user, holds=holds)
        try:
            await self._carry_on(subscriber, spec)
        except BaseException:
            if claims is not None:
                claims.close(*key)
            raise
        if claims is not None and subscriber.durable:
            claims.close(*key)  # its record says whose it is
        elif claims is not None and not claims.holds(*key):
            raise _fenced()

    async def _carry_on(self, subscriber: HeldSubscriber, spec: SubscriberSpec) -> None:
        """Open it in the log, unless nothing of it must be there. On a disk that is nearly full
        nothing new comes into being, but what waits for a known one can be consumed.
        """
        process = self._process
        home = self.home_of(spec.tenant, spec.name)
        keeps = spec.expiry_ms != 0 or spec.will is not None
        if spec.clean and not keeps:
            end = tree.EndSubscriber(spec.tenant, spec.name, spec.user)
            await self._propose_as(home, spec, end)
            return
        makes = keeps and process.accepting
        change = tree.OpenSubscriber(
            spec.tenant,
            spec.name,
            spec.clean,
            spec.expiry_ms,
            tree.WillRecord.of(spec.will),
            not makes,
            process.owner,
            spec.user,
        )
        # Again if the answer says only that it was opened before (`OPEN_TRIES`).
        for _ in range(OPEN_TRIES):
            opened = await self._propose_as(home, spec, change)
            if isinstance(opened, tree.Opened):
                subscriber.opened(home, opened)
                return
            if opened is False:
                break
        else:
            raise KernelError(Code.UNAVAILABLE, "what the subscriber is could not be found out")
        if keeps:
            raise KernelError(Code.NO_SPACE, "free disk is below the mark for new messages")

    async def _propose_as(
        self,
        home: RaftGroup,
        spec: SubscriberSpec,
        change: tree.OpenSubscriber | tree.EndSubscriber,
    ) -> object:
        """Propose it; if the subscriber is nobody's, in the name of a user who may have all of it.
        What it has may change between question and answer: whoever serves it asks again for each.
        """
        result = await self._proposer.propose(home, change)
        if not isinstance(result, tree.Belongings):
            return result
        if spec.may_have is not None and not spec.may_have(result):
            raise anothers()
        adopting = msgspec.structs.replace(change, adopts=result.number)
        result = await self._proposer.propose(home, adopting)
        if isinstance(result, tree.Belongings):  # it has ended meanwhile, and another has begun
            raise KernelError(Code.UNAVAILABLE, "the subscriber has changed meanwhile")
        return result

    async def close(
        self, subscriber: HeldSubscriber, will: bool, expiry_ms: int | None, notes: Changes
    ) -> None:
        """The connection is over; on disk when it returns, if it is durable."""
        if subscriber.closed or subscriber.fenced:
            return
        subscriber.closed = True
        self._forget(subscriber)
        if not subscriber.durable:
            if self.claims is not None:
                self.claims.close(subscriber.tenant, subscriber.name)
            await self._leave_shares(subscriber)
            return
        await self._proposer.propose(
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

    async def _leave_shares(self, subscriber: HeldSubscriber) -> None:
        """A subscriber that lived in memory is over."""
        shares, subscriber.subscriptions = list(subscriber.subscriptions), {}
        for some in slices(shares):
            failed = await _failed_of(self._begin_each(subscriber, some, _leaving))
            if failed:
                raise next(iter(failed.values()))

    def consumer(
        self, subscriber: HeldSubscriber, session: Session, sink: ConsumerSink
    ) -> SubscriberConsumer:
        """A consumer without subscriptions and without credit."""
        return self._consumer(subscriber, session, sink)

    # --- Subscriptions ------------------------------------------------------------------------

    async def subscribe(
        self, subscriber: HeldSubscriber, wanted: Mapping[Subscription, bytes]
    ) -> dict[Subscription, bool | KernelError]:
        """Subscribe to each, with its options; on disk, in all groups concerned, when it returns:
        whether it is new, or why there is none.
        """
        told: dict[Subscription, bool | KernelError] = {}
        for subscription in wanted:
            try:
                _check(subscriber, subscription)
            except KernelError as error:
                told[subscription] = error
        good = {each: options for each, options in wanted.items() if each not in told}
        async with self._keyed_lock.of(subscriber.number or subscriber):
            _check_open(subscriber)
            fresh = [each for each in good if each not in subscriber.subscriptions]
            failed: dict[Subscription, KernelError] = {}
            joins = self._begin_each(subscriber, fresh, _joining)
            if joins and self._process.owner:
                # What home knows of must be kept everywhere, though this process may end at any
                # time. The process of all leaders mends that when it starts, and need not wait.
                failed = await _failed_of(joins)
                joins = []
            put = [each for each in good if each not in failed] if subscriber.durable else []
            if put:
                joins.append(
                    (
                        put,
                        self._proposer.begin_all(
                            subscriber.home,
                            [_putting(subscriber, each, good[each]) for each in put],
                        ),
                    )
                )
            failed.update(await _failed_of(joins))
            left = [each for each in fresh if each in failed]
            if left:
                await _failed_of(self._begin_each(subscriber, left, _leaving))
            for subscription, options in good.items():
                if subscription not in failed:
                    told[subscription] = subscription not in subscriber.subscriptions
                    subscriber.subscriptions[subscription] = options
        told.update(failed)
        return told

    def _begin_each(
        self, subscriber: HeldSubscriber, subscriptions: Sequence[Subscription], change: _Change
    ) -> _Begun:
        """Have something done in each Raft group that holds what a subscription wants: a batch of
        each group.
        """
        by_group: dict[RaftGroup, list[Subscription]] = {}
        for each in subscriptions:
            for group in self._routes.groups_of(subscriber.tenant, each.pattern):
                by_group.setdefault(group, []).append(each)
        return [
            (some, self._proposer.begin_all(group, [change(subscriber, each) for each in some]))
            for group, some in by_group.items()
        ]

    async def unsubscribe(
        self, subscriber: HeldSubscriber, subscriptions: Sequence[Subscription]
    ) -> dict[Subscription, bool | KernelError]:
        """End each; on disk when it returns: whether there was one, or why it ends only with the
        subscriber.
        """
        async with self._keyed_lock.of(subscriber.number or subscriber):
            _check_open(subscriber)
            told: dict[Subscription, bool | KernelError] = dict.fromkeys(subscriptions, False)
            known = [each for each in told if each in subscriber.subscriptions]
            if subscriber.durable and known:
                changes = [_deleting(subscriber, each) for each in known]
                begun = self._proposer.begin_all(subscriber.home, changes)
                told.update(await _failed_of([(known, begun)]))
            gone = [each for each in known if told[each] is False]
            for each in gone:
                del subscriber.subscriptions[each]
            told.update(dict.fromkeys(gone, True))
            told.update(await _failed_of(self._begin_each(subscriber, gone, _leaving)))
            return told

    def note(
        self,
        subscriber: HeldSubscriber,
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


def home_of_client(groups: Sequence[RaftGroup], tenant: str, name: str) -> RaftGroup:
    """Raft group that has the record of a subscriber of this name."""
    return home_group(groups, tenant, _SUBSCRIBER + name)


def leaving(
    tenant: str, subscription: Subscription, number: int, member: tuple[int, int], epoch: int
) -> tree.LeaveIndex:
    """What ends a subscription in a group of its pattern."""
    share = subscription.share
    group = group_of(number, share)
    return tree.LeaveIndex(tenant, subscription.pattern, group, member if share else None, epoch)


_Change = Callable[[HeldSubscriber, Subscription], Control]
_Begun = list[tuple[Sequence[Subscription], "asyncio.Future[list[object]]"]]
"""Subscriptions, and what the command of each will have come to in one group."""


def _joining(subscriber: HeldSubscriber, subscription: Subscription) -> Control:
    share = subscription.share
    return tree.JoinIndex(
        subscriber.tenant,
        subscription.pattern,
        group_of(subscriber.number, share),
        MARK_AHEAD,
        subscriber.member if share else None,
        subscriber.epoch,
    )


def _leaving(subscriber: HeldSubscriber, subscription: Subscription) -> Control:
    return leaving(
        subscriber.tenant,
        subscription,
        subscriber.number,
        subscriber.member,
        subscriber.epoch,
    )


def _putting(
    subscriber: HeldSubscriber, subscription: Subscription, options: bytes
) -> tree.PutSubscription:
    number, epoch = subscriber.number, subscriber.epoch
    share, pattern = subscription.share, subscription.pattern
    return tree.PutSubscription(number, epoch, share, pattern, options)


def _deleting(subscriber: HeldSubscriber, subscription: Subscription) -> tree.DeleteSubscription:
    number, epoch = subscriber.number, subscriber.epoch
    return tree.DeleteSubscription(number, epoch, subscription.share, subscription.pattern)


async def _failed_of(begun: _Begun) -> dict[Subscription, KernelError]:
    """Subscriptions whose command has failed in some group, and why."""
    failed: dict[Subscription, KernelError] = {}
    for subscriptions, results in begun:
        for subscription, result in zip(subscriptions, await results, strict=True):
            if isinstance(result, KernelError):
                failed.setdefault(subscription, result)
    return failed


def slices(subscriptions: Sequence[Subscription]) -> Iterator[Sequence[Subscription]]:
    """Subscriptions, so many at a time that others have their turn in between."""
    start = size = 0
    for at, each in enumerate(subscriptions):
        size += len(each.pattern)
        if at - start >= TOGETHER_MAX or size > TOGETHER_CHARACTERS_MAX:
            if at > start:
                yield subscriptions[start:at]
            start, size = at, len(each.pattern)
    if start < len(subscriptions):
        yield subscriptions[start:]


def _check(subscriber: HeldSubscriber, subscription: Subscription) -> None:
    check_pattern(subscription.pattern)
    _check_share(subscription.share)
    if not subscriber.durable and not subscription.share:
        raise KernelError(Code.INVALID_ARGUMENT, "the subscriber ends with its connection")


def _check_share(share: str) -> None:
    if len(share.encode()) > NAME_BYTES_MAX - len("share/"):
        raise KernelError(Code.INVALID_ARGUMENT, "the name of a share is too long")


def _fenced() -> KernelError:
    return KernelError(Code.SESSION_FENCED, "the subscriber has another connection")


def _check_open(subscriber: HeldSubscriber) -> None:
    if subscriber.fenced or subscriber.closed:
        raise _fenced()
