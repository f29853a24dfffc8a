"""Replicas of a group that are to be in other stores: what is wanted, and how far it is.

    cluster/move/GROUP    MessagePack of a `ReplicaMove`; one for each group at most

    (none) --> wanted: `to` learns, then votes, and `gone` leaves in that joint step --> (none)
                  '--> cancelled: `to` leaves, unless it votes already ----------------> (none)

Records of group 0, so that whoever leads it next goes on; several groups move at once. What a store
has of a group that it does not belong to any more goes by itself (`outsiders`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from ..common.errors import Code, KernelError
from ..common.ids import METADATA_GROUP
from .messages import Goal, GroupReport, Move, Towards
from .records import NodeRecord, NodeState

PREFIX = "cluster/move/"

MOVES_MAX = 64
"""Under way at once: each asks a leader something with every look of the manager."""


class ReplicaMove(msgspec.Struct, frozen=True, array_like=True):
    """One group's way to other members."""

    group: int
    to: int
    """The store that is to have a replica; 0: none."""
    gone: int
    """The store that is not to have one any more; 0: none."""
    cancelled: bool = False
    why: str = ""
    """Of a move that the manager began by itself, for people."""


def key_of(group: int) -> str:
    """Key of a group's record."""
    return f"{PREFIX}{group:05d}"


def encode(move: ReplicaMove) -> bytes:
    """The record's value."""
    return msgspec.msgpack.encode(move)


def read(records: Mapping[str, tuple[int, bytes]]) -> dict[int, tuple[int, ReplicaMove]]:
    """(version, move) by group."""
    found = {}
    for version, value in records.values():
        move = msgspec.msgpack.decode(value, type=ReplicaMove)
        found[move.group] = version, move
    return found


def steps(move: ReplicaMove) -> list[Towards]:
    """What its leader is asked, again and again, each until it is done. Of group 0 every store
    keeps a replica: who is not to vote any more goes on learning.
    """
    group, to, gone = move.group, move.to, move.gone
    if group == METADATA_GROUP:
        votes = [Towards(group, to, Goal.VOTER)] if to and not move.cancelled else []
        learns = [Towards(group, gone, Goal.OBSERVER)] if gone and not move.cancelled else []
        return votes + learns
    if move.cancelled:
        return [Towards(group, to, Goal.NO_LEARNER)]
    if not to:
        return [Towards(group, gone, Goal.GONE)]
    return [Towards(group, to, Goal.VOTER, gone)]


def is_void(move: ReplicaMove, stores: Collection[int]) -> bool:
    """Whether it leads to a store that does not belong to the cluster any more."""
    return bool(move.to) and move.to not in stores and not move.cancelled


def wished(
    moves: Mapping[int, tuple[int, ReplicaMove]], stores: Mapping[int, NodeRecord], asked: Move
) -> ReplicaMove | None:
    """The record to be written; None if nothing changes. Raises KernelError: NOT_FOUND, nothing
    moves that could be cancelled; IN_USE, something else does; NOT_ALLOWED: group 0, or a store
    that is no member, joins or leaves; LIMIT_EXCEEDED.
    """
    _, known = moves.get(asked.group, (0, None))
    if asked.cancel:
        if known is None:
            raise KernelError(Code.NOT_FOUND, f"no replica of group {asked.group} moves")
        return None if known.cancelled or not known.to else replace(known, cancelled=True)
    move = ReplicaMove(asked.group, asked.to, asked.gone)
    if known is not None and known != replace(move, why=known.why):
        raise KernelError(Code.IN_USE, f"a replica of group {asked.group} moves already")
    if asked.group == METADATA_GROUP:
        raise KernelError(Code.NOT_ALLOWED, "group 0 is in every store")
    record = stores.get(asked.to)
    if asked.to and (record is None or record.state is not NodeState.MEMBER):
        message = f"store {asked.to} does not belong to the cluster, or is joining or leaving it"
        raise KernelError(Code.NOT_ALLOWED, message)
    if len(moves) >= MOVES_MAX:
        raise KernelError(Code.LIMIT_EXCEEDED, f"replicas of {MOVES_MAX} groups move already")
    return move if known is None else None


def check(
    asked: Move, group: GroupReport | None, stores: Mapping[int, NodeRecord], *, same_host: bool
) -> None:
    """Raise KernelError unless a group, as its leader sees it, can be moved so: UNAVAILABLE, nobody
    leads it; INVALID_ARGUMENT: `to` has a replica already, `gone` has none, or both are the same;
    NOT_ALLOWED: it would have none, or two on a host (unless `same_host`).
    """
    if group is None or not group.serves:
        raise KernelError(Code.UNAVAILABLE, f"nobody leads group {asked.group} now")
    if asked.to in group.voters or (asked.gone and asked.gone not in group.voters):
        voters = ", ".join(map(str, group.voters))
        message = f"group {asked.group} has its replicas in stores {voters}"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    if not asked.to and not asked.gone:
        raise KernelError(Code.INVALID_ARGUMENT, "name a store that is to have it, or not to")
    stay = {*group.voters} - {asked.gone}
    if not asked.to and not stay:
        raise KernelError(Code.NOT_ALLOWED, "it is the only store that has the data")
    labels = {stores[each].facts.label for each in stay if each in stores}
    if asked.to and not same_host and stores[asked.to].facts.label in labels:
        raise KernelError(
            Code.NOT_ALLOWED,
            f"another replica of group {asked.group} is on host {stores[asked.to].facts.label!r} "
            "too: what ends one may end both. Say --same-host if it is to be so",
        )
