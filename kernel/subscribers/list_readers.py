"""Who is to read the lists of the topic tree, as the subscriptions of some replicas say.

A list lies in the Raft group of its pattern, the subscription that wants it in the home of its
subscriber: the leader of a list's group compares the two (`subscriber_keeper`), and asks the
leaders of homes that it has no replica of (`requests.peer_stores.PeerStores.wanted`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..broker.group_state.state import GroupState
from ..broker.group_state.tree_state import SubscriberState
from ..broker.snapshots.tree_snapshot import index_queue
from ..common.ids import RaftGroup
from ..requests.peer_stores import ListReader
from ..store.replicas.replica import Replica
from .held_subscriber import group_of, number_of

Readers = Mapping[tuple[str, str], Mapping[str, list[tuple[tuple[int, int] | None, int]]]]
"""(tenant, pattern) to the groups on its lists, and (member, epoch) of who has joined each."""


def wanted_by(replicas: Iterable[Replica]) -> Readers:
    """All that the subscribers of some groups want: a turn of some ms for 10,000 of them."""
    wanted: dict[tuple[str, str], dict[str, list[tuple[tuple[int, int] | None, int]]]] = {}
    for replica in replicas:
        for subscriber in replica.state.subscribers.values():
            for share, pattern in subscriber.subscriptions:
                names = wanted.setdefault((subscriber.tenant, pattern), {})
                who = _member(subscriber, share), subscriber.epoch
                names.setdefault(group_of(subscriber.number, share), []).append(who)
    return wanted


def unwanted_in(state: GroupState, wanted: Readers) -> set[ListReader]:
    """Who reads a list of a group and is not to. Whoever has an owner is looked after by
    `tree_owners`.
    """
    found: set[ListReader] = set()
    for (tenant, pattern), ident in state.indexes.items():
        names = wanted.get((tenant, pattern), {})
        for name, progress in state.queues[index_queue(ident)].groups.items():
            if name not in names and not any(each[0] for each in progress.members):
                found.add((tenant, pattern, name))
    return found


def wanted_of(replica: Replica, readers: Iterable[ListReader]) -> set[ListReader]:
    """Which of these readers a subscriber of a group wants."""
    wanted = wanted_by([replica])
    return {each for each in readers if each[2] in wanted.get(each[:2], {})}


def homes_of(reader: ListReader, homes: Collection[RaftGroup]) -> Collection[RaftGroup]:
    """Where those have their home who might want a reader: of a share it may be anybody."""
    number = number_of(reader[2])
    return homes if number is None else [RaftGroup(number >> 40)]


def _member(subscriber: SubscriberState, share: str) -> tuple[int, int] | None:
    return (0, subscriber.number) if share else None
