"""The register of data groups that were added while the cluster runs (ADR 30): records of group 0.

    cluster/group/NUMBER    MessagePack of an `AddedGroup`; numbers from `ids.ADDED_FIRST` up

               the store that it names makes it             it has the voters that it is to have
    (none) --> WANTED --------------------------> GROWING ------------------------------> GROWN
                  '--> LOST, where that store was lost before it told; another number is made

A group is begun in one store, which is its only voter then. Should that store make it twice, since
it has lost what it had, nothing comes of it: before GROWING is committed the group has no other
member and no queue. After it nobody makes the group: who has none of it waits to be made a member.

The record names the data directory too. A store that comes back with another one may have made the
group and have forgotten it: it is another store, which was not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..common.errors import UNDECODABLE, Code, KernelError
from ..common.ids import ADDED_FIRST, RaftGroup
from ..common.limits import ADDED_GROUPS_MAX
from .records import NodeRecord, NodeState

PREFIX = "cluster/group/"


class GroupState(StrEnum):
    """How far a group is."""

    WANTED = "wanted"
    """One store is to make it."""
    LOST = "lost"
    """That store has gone before it said that it did. The number is not given again."""
    GROWING = "growing"
    """It is there, and has fewer voters than it is to have."""
    GROWN = "grown"
    """It takes queues. How many voters it has is others' business from now on."""


class AddedGroup(msgspec.Struct, frozen=True, array_like=True):
    """The record of one group."""

    number: Annotated[int, Meta(ge=ADDED_FIRST, lt=ADDED_FIRST + ADDED_GROUPS_MAX)]
    state: GroupState
    store: int
    """Number of the store in which it begins."""
    directory: str
    """Id of the data directory of that store, as its `Facts` have it."""


Added = Mapping[int, tuple[int, AddedGroup]]
"""(version, record) by number."""

_decoder = msgspec.msgpack.Decoder(AddedGroup)


def key_of(number: int) -> str:
    """Key of a group's record."""
    return f"{PREFIX}{number:05d}"


def encode(group: AddedGroup) -> bytes:
    """The record's value."""
    return msgspec.msgpack.encode(group)


def read(records: Mapping[str, tuple[int, bytes]]) -> dict[int, tuple[int, AddedGroup]]:
    """(version, record) of every group that was added, by number. What cannot be read is of a
    later version, and none for this one.
    """
    found: dict[int, tuple[int, AddedGroup]] = {}
    for key, (version, value) in sorted(records.items()):
        if key.startswith(PREFIX):
            try:
                record = _decoder.decode(value)
            except UNDECODABLE:
                continue
            found[record.number] = version, record
    return found


def wanted(
    added: Added,
    stores: Mapping[int, NodeRecord],
    answering: Collection[int],
    voters: Iterable[Collection[int]],
    count: int,
) -> list[AddedGroup]:
    """Records for so many groups more: each begins in the store that has the fewest replicas, of
    those that answer and neither join nor leave. `voters`: of every group.

    Raises KernelError: INVALID_ARGUMENT (none are asked for), LIMIT_EXCEEDED (of the numbers that
    there are too few are left), UNAVAILABLE (no store answers).
    """
    if count < 1:
        raise KernelError(Code.INVALID_ARGUMENT, "name how many groups are to be added: 1 or more")
    if len(added) + count > ADDED_GROUPS_MAX:
        raise KernelError(
            Code.LIMIT_EXCEEDED,
            f"a cluster has at most {ADDED_GROUPS_MAX} groups besides those that it began with, "
            f"and {len(added)} were added already",
        )
    counted = Counter(number for each in voters for number in each)
    held = {
        number: counted[number]
        for number, record in stores.items()
        if record.state is NodeState.MEMBER and number in answering
    }
    if not held:
        raise KernelError(Code.UNAVAILABLE, "no store answers that could begin a group")
    found: list[AddedGroup] = []
    for number in range(max(added, default=ADDED_FIRST - 1) + 1, ADDED_FIRST + ADDED_GROUPS_MAX):
        if len(found) == count:
            break
        store = min(held, key=lambda each: (held[each], each))
        held[store] += 1
        directory = stores[store].facts.store
        found.append(AddedGroup(number, GroupState.WANTED, store, directory))
    return found


def given_up(added: Added, stores: Mapping[int, NodeRecord]) -> list[tuple[int, AddedGroup]]:
    """(version, record as it is to be) of groups whose store has gone before they were there."""
    return [
        (version, replace(each, state=GroupState.LOST))
        for version, each in added.values()
        if each.state is GroupState.WANTED
        and (each.store not in stores or stores[each.store].facts.store != each.directory)
    ]


def begun(groups: Iterable[int], added: Added) -> list[int]:
    """Those of some groups that may be given members: not one that its store has made, and has not
    been heard to have made. If it made that once more, nobody would be a member of the first.
    """
    there = {
        number
        for number, (_, each) in added.items()
        if each.state in (GroupState.GROWING, GroupState.GROWN)
    }
    return [each for each in groups if each < ADDED_FIRST or each in there]


def closed(added: Added) -> set[RaftGroup]:
    """Groups that take no queues yet."""
    return {
        RaftGroup(number) for number, (_, e) in added.items() if e.state is not GroupState.GROWN
    }
