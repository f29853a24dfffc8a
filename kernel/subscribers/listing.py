"""Durable subscribers of a group that this store leads, for an administrator who looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..api.tree import SubscriberFacts, SubscriptionFacts
from ..broker.group_state.tree_state import SubscriberState
from ..broker.snapshots.tree_snapshot import index_queue
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.limits import SUBSCRIPTIONS_COUNTED_MAX
from ..store.replicas.replica import Replica
from .held_subscriber import group_of, share_of

Reader = tuple[str, str, str]
"""(tenant, pattern, consumer group): a reader of the lists of a pattern."""

GroupsOf = Callable[[str, str], Iterable[RaftGroup]]
"""Raft groups that have lists of a (tenant, pattern)."""


def first_names(
    names: Iterable[tuple[str, str]], tenant: str, begins: str, after: str
) -> list[str]:
    """Of (tenant, name), those of a tenant that begin so and come behind `after`, in no order."""
    return [
        name
        for owner, name in names
        if owner == tenant and name > after and name.startswith(begins)
    ]


def subscribers_named(replica: Replica, tenant: str, names: Iterable[str]) -> list[SubscriberFacts]:
    """Those that are still there."""
    state, now_ms = replica.state, replica.log_time_ms()
    numbers = [state.subscriber_names.get((tenant, name)) for name in names]
    known = [state.subscribers.get(each) for each in numbers if each is not None]
    return [facts_of(each, now_ms) for each in known if each is not None]


def facts_of(subscriber: SubscriberState, now_ms: int) -> SubscriberFacts:
    """What is told of one at a log time."""
    ends_ms = subscriber.ends_at_ms
    return SubscriberFacts(
        subscriber.name,
        subscriber.user,
        subscriber.connected,
        subscriber.expiry_ms,
        None if ends_ms is None else max(0, ends_ms - now_ms),
        len(subscriber.subscriptions),
        len(subscriber.notes),
        subscriber.will is not None,
    )


def readers_of(replica: Replica, tenant: str, name: str) -> list[Reader] | None:
    """A subscriber's reader for each subscription, by pattern and share; None: there is none."""
    number = replica.state.subscriber_names.get((tenant, name))
    subscriber = None if number is None else replica.state.subscribers.get(number)
    if subscriber is None:
        return None
    return [
        (tenant, pattern, group_of(subscriber.number, share))
        for pattern, share in sorted(
            (pattern, share) for share, pattern in subscriber.subscriptions
        )
    ]


def waiting_in(replica: Replica, readers: Sequence[Reader]) -> list[int]:
    """Messages of this group that each reader has not acked; 0 where it has no list here."""
    found: list[int] = []
    for tenant, pattern, group in readers:
        ident = replica.state.indexes.get((tenant, pattern))
        queue = None if ident is None else replica.state.queues.get(index_queue(ident))
        progress = None if queue is None else queue.groups.get(group)
        if queue is None or progress is None:
            found.append(0)
        else:
            found.append(queue.index.tail - progress.floor - progress.acked_above)
    return found


class WaitingCounts:
    """What waits for the first subscriptions of a subscriber, added up over Raft groups."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        """`readers`: of all its subscriptions."""
        self._readers = readers
        self._sums = dict.fromkeys(readers[:SUBSCRIPTIONS_COUNTED_MAX], 0)

    def asked(self, groups_of: GroupsOf) -> dict[RaftGroup, list[Reader]]:
        """The readers that each group is to be asked about."""
        asked: dict[RaftGroup, list[Reader]] = {}
        for reader in self._sums:
            for group in groups_of(reader[0], reader[1]):
                asked.setdefault(group, []).append(reader)
        return asked

    def add(self, readers: Sequence[Reader], waiting: Sequence[int]) -> None:
        """The answer of one group."""
        for reader, messages in zip(readers, waiting, strict=True):
            self._sums[reader] += messages

    def facts(self) -> list[SubscriptionFacts]:
        """Every subscription."""
        return [
            SubscriptionFacts(reader[1], share_of(reader[2]), self._sums.get(reader))
            for reader in self._readers
        ]


def no_subscriber(name: str) -> KernelError:
    """What asking for one that is not there comes to."""
    return KernelError(Code.NOT_FOUND, f"there is no durable subscriber {name}")
