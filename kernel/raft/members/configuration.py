"""Changes of membership: what may be asked for, how it is written, what it makes of a membership.

One voter may come, go or be swapped for nothing in a single step; everything else goes through a
joint configuration (Raft dissertation 4.3): enter it, let both majorities work, leave it. A change
becomes active when it is applied, not when it is appended. Body of a CONFIGURATION entry:

    u8 version (1) | u8 transition | u16 changes | (u8 kind | u64 node)[changes] | context

Little-endian. An empty body is the change that leaves a joint configuration.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ..errors import ConfigurationRefused
from ..messages import Membership

ADD_VOTER: Final = 0
ADD_LEARNER: Final = 1
REMOVE: Final = 2
UPDATE: Final = 3
"""Changes nothing here; the context says what changed (an address)."""

AUTO: Final = 0
"""One change in one step if possible, else a joint configuration that ends by itself."""
JOINT_IMPLICIT: Final = 1
"""A joint configuration that the leader ends by itself once it is applied."""
JOINT_EXPLICIT: Final = 2
"""A joint configuration that stays until an empty change is proposed."""

CHANGES_MAX: Final = 64
"""A group has a handful of members; a longer list is a mistake."""

_VERSION: Final = 1
_HEAD = struct.Struct("<BBH")
_CHANGE = struct.Struct("<BQ")


class Change(NamedTuple):
    """One member's change. Node 0 stands for a change that was given up; it is ignored."""

    kind: int
    node: int


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """What a CONFIGURATION entry says. Without any change it leaves a joint configuration."""

    changes: tuple[Change, ...] = ()
    transition: int = AUTO
    context: bytes = b""
    """The driver's own, opaque: addresses, replica identities."""

    @property
    def leaves_joint(self) -> bool:
        """Whether this ends a joint configuration."""
        return not self.changes and self.transition == AUTO

    @property
    def enters_joint(self) -> bool:
        """Whether this begins one."""
        return self.transition != AUTO or len(self.changes) > 1

    @property
    def auto_leave(self) -> bool:
        """Whether the joint configuration that this begins ends by itself."""
        return self.transition != JOINT_EXPLICIT


def encode(change: ConfigurationChange) -> bytes:
    """Body of the entry. ValueError for more than CHANGES_MAX changes."""
    if len(change.changes) > CHANGES_MAX:
        raise ValueError(f"{len(change.changes)} changes at once; at most {CHANGES_MAX}")
    if change == ConfigurationChange():
        return b""
    head = _HEAD.pack(_VERSION, change.transition, len(change.changes))
    return head + b"".join(_CHANGE.pack(*each) for each in change.changes) + change.context


def decode(body: bytes) -> ConfigurationChange:
    """What `encode` wrote. ValueError if it did not."""
    if not body:
        return ConfigurationChange()
    if len(body) < _HEAD.size:
        raise ValueError("a configuration change is cut short")
    version, transition, count = _HEAD.unpack_from(body)
    end = _HEAD.size + count * _CHANGE.size
    if version != _VERSION or transition > JOINT_EXPLICIT or len(body) < end:
        raise ValueError("not a configuration change of a version known here")
    changes = tuple(Change(*each) for each in _CHANGE.iter_unpack(body[_HEAD.size : end]))
    if any(each.kind > UPDATE for each in changes):
        raise ValueError("not a configuration change of a kind known here")
    return ConfigurationChange(changes, transition, body[end:])


def describe(members: Membership) -> str:
    """For people: `voters=(1 2)&&(1) learners=(3)`."""
    text = f"voters={_ids(members.voters)}"
    if members.voters_outgoing:
        text += f"&&{_ids(members.voters_outgoing)}"
    if members.learners:
        text += f" learners={_ids(members.learners)}"
    if members.learners_next:
        text += f" learners_next={_ids(members.learners_next)}"
    return text + (" autoleave" if members.auto_leave else "")


def _ids(nodes: Iterable[int]) -> str:
    return "(" + " ".join(map(str, nodes)) + ")"


class _Draft:
    """A membership that is being changed."""

    def __init__(self, members: Membership) -> None:
        self.voters = set(members.voters)
        self.outgoing = set(members.voters_outgoing)
        self.learners = set(members.learners)
        self.learners_next = set(members.learners_next)

    def _knows(self, node: int) -> bool:
        return node in self.voters or node in self.outgoing or node in self.learners

    def add_voter(self, node: int) -> None:
        self.learners.discard(node)
        self.learners_next.discard(node)
        self.voters.add(node)

    def add_learner(self, node: int) -> None:
        """A voter of the outgoing half has to stay one until that half ends."""
        if node in self.learners:
            return
        if self._knows(node):
            self.remove(node)
        if node in self.outgoing:
            self.learners_next.add(node)
        else:
            self.learners.add(node)

    def remove(self, node: int) -> None:
        self.voters.discard(node)
        self.learners.discard(node)
        self.learners_next.discard(node)

    def update(self, node: int) -> None:
        """Nothing changes: the member is there already."""

    def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.node:
                _APPLY[change.kind](self, change.node)
        if not self.voters:
            raise ConfigurationRefused("removed all voters")

    def done(self, *, auto_leave: bool = False) -> Membership:
        return Membership(
            tuple(sorted(self.voters)),
            tuple(sorted(self.outgoing)),
            tuple(sorted(self.learners)),
            tuple(sorted(self.learners_next)),
            auto_leave,
        )


_APPLY: Final[tuple[Callable[[_Draft, int], None], ...]] = (
    _Draft.add_voter,
    _Draft.add_learner,
    _Draft.remove,
    _Draft.update,
)


def simple(members: Membership, changes: Sequence[Change]) -> Membership:
    """One step: at most one voter comes or goes. ConfigurationRefused otherwise."""
    if members.voters_outgoing:
        raise ConfigurationRefused("can't apply simple config change in joint config")
    draft = _Draft(members)
    draft.apply(changes)
    if len(draft.voters.symmetric_difference(members.voters)) > 1:
        raise ConfigurationRefused("more than one voter changed without entering joint config")
    return draft.done()


def enter_joint(members: Membership, changes: Sequence[Change], *, auto_leave: bool) -> Membership:
    """The joint configuration of `members` and what the changes make of them."""
    if members.voters_outgoing:
        raise ConfigurationRefused("config is already joint")
    if not members.voters:
        raise ConfigurationRefused("can't make a zero-voter config joint")
    draft = _Draft(replace(members, voters_outgoing=members.voters))
    draft.apply(changes)
    return draft.done(auto_leave=auto_leave)


def leave_joint(members: Membership) -> Membership:
    """The incoming half alone; who waited for it becomes a learner."""
    if not members.voters_outgoing:
        raise ConfigurationRefused("can't leave a non-joint config")
    draft = _Draft(members)
    draft.outgoing.clear()
    draft.learners |= draft.learners_next
    draft.learners_next.clear()
    return draft.done()


def changed(members: Membership, change: ConfigurationChange) -> Membership:
    """What an applied change makes of a membership. ConfigurationRefused if it does not fit."""
    if change.leaves_joint:
        return leave_joint(members)
    if change.enters_joint:
        return enter_joint(members, change.changes, auto_leave=change.auto_leave)
    return simple(members, change.changes)
