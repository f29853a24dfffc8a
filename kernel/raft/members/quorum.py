"""What a majority, or both majorities of a joint configuration, has agreed on.

A joint configuration (Raft dissertation 4.3) has an incoming and an outgoing set of voters and
decides only what both decide. The outgoing set is empty outside of a change, and an empty set
agrees to everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

INFINITE: Final = (1 << 64) - 1
"""What an empty set of voters has committed."""

VOTE_PENDING: Final = 0
VOTE_LOST: Final = 1
VOTE_WON: Final = 2


def majority_committed(matches: Sequence[int]) -> int:
    """The highest index that a majority has, given the highest that each voter has (0: unknown)."""
    count = len(matches)
    if count == 3:
        first, second, third = matches
        if first > second:
            first, second = second, first
        return max(first, min(second, third))
    if count == 1:
        return matches[0]
    if count == 0:
        return INFINITE
    return sorted(matches)[(count - 1) // 2]


def majority_vote(voters: Collection[int], votes: Mapping[int, bool]) -> int:
    """VOTE_WON, VOTE_LOST or VOTE_PENDING; a voter without an entry in `votes` has not voted."""
    if not voters:
        return VOTE_WON
    granted = missing = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is None:
            missing += 1
        elif vote:
            granted += 1
    needed = len(voters) // 2 + 1
    if granted >= needed:
        return VOTE_WON
    return VOTE_PENDING if granted + missing >= needed else VOTE_LOST


def joint_vote(
    incoming: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]
) -> int:
    """The result over both sets: won in both, lost as soon as it is lost in one."""
    first = majority_vote(incoming, votes)
    second = majority_vote(outgoing, votes)
    if first == second:
        return first
    return VOTE_LOST if VOTE_LOST in (first, second) else VOTE_PENDING
