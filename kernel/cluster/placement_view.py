"""What the planner is given (`placement.view`), made of the register and what stores report. Pure.

    store in the register         to the planner
    JOINING, in group 0           joining; not in it yet: nothing is given to it
    MEMBER                        in; joining, while it takes its share
    LEAVING; replaced by another  leaving, once that one is in group 0: until then it is in, for
                                  what it gave away would be nowhere else; gone, if nothing that it
                                  held will come back
    (not in the register)         gone

Members of a group are its voters, and learners that heal or do not answer: these vote again by
themselves. Of group 0 only voters count: every store has it (ADR 30).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..common.ids import METADATA_GROUP
from .group_loads import GroupLoads
from .messages import GroupReport, Report
from .placement.view import GroupView, Kind, Load, Move, Reason, StoreState, StoreView
from .records import NodeRecord, NodeState
from .replica_moves import ReplicaMove

WRITES, SENDS = 50e6, 100e6
"""Bytes a second that a store is taken to be able to write, and to send. What matters is that it is
alike for all, and of which size a load is that is worth a move: a twentieth of it."""

Records = Mapping[int, NodeRecord]
Moving = Mapping[int, tuple[int, ReplicaMove]]
"""(version, move) by group."""


def stores_of(
    records: Records,
    reports: Mapping[int, Report],
    members: Collection[int],
    taking: Collection[int],
) -> list[StoreView]:
    """Every store of the register that has a part. `members`: stores that group 0 has, learners
    among them; `taking`: stores that take their share.
    """
    joining = [each for each in records.values() if each.state is NodeState.JOINING]
    replaced = {each.replaces: each.number in members for each in joining}
    found: list[StoreView] = []
    for number, record in records.items():
        report = reports.get(number)
        state = _state(record, replaced, taking, answers=report is not None)
        if state is StoreState.GONE or (state is StoreState.JOINING and number not in members):
            continue
        held = sum(each.live for each in report.groups) if report is not None else 0
        room = held + (report.room if report is not None else 0)
        capacity = Load(WRITES, SENDS, float(max(1, room)))
        answers = report is not None
        facts = record.facts
        found.append(StoreView(number, capacity, facts.label, facts.zone, state, answers))
    return found


def _state(
    record: NodeRecord, replaced: Mapping[int, bool], taking: Collection[int], *, answers: bool
) -> StoreState:
    """`replaced`: by store, whether the one that takes its place is in group 0."""
    if record.then is not None or (record.number in replaced and not answers):
        return StoreState.GONE
    if record.state is NodeState.LEAVING or replaced.get(record.number):
        return StoreState.LEAVING
    if record.state is NodeState.JOINING or record.number in taking:
        return StoreState.JOINING
    return StoreState.IN


def groups_of(
    groups: Mapping[int, GroupReport],
    reports: Mapping[int, Report],
    moving: Moving,
    loads: GroupLoads,
) -> list[GroupView]:
    """`groups`: each by the report of its leader, or else of anybody."""
    found: list[GroupView] = []
    for number, group in groups.items():
        members = set(group.voters)
        if number != METADATA_GROUP:
            _, move = moving.get(number, (0, None))
            comes = move.to if move is not None else 0
            members |= {
                each
                for each in group.learners
                if each != comes and _votes_again(reports, each, number)
            }
        # In a joint configuration nothing else can be decided: left alone as without a leader.
        leader = group.leader if group.serves and not group.joint else 0
        found.append(GroupView(number, tuple(sorted(members)), leader, loads.of(number)))
    return found


def orphans(
    groups: Mapping[int, GroupReport], reports: Mapping[int, Report], moving: Moving
) -> list[tuple[int, int]]:
    """(group, store) of each learner of a data group that is to become nothing: whoever has made it
    one wants it no more.
    """
    return [
        (number, learner)
        for number, group in groups.items()
        if number not in (METADATA_GROUP, *moving) and group.serves and not group.joint
        for learner in group.learners
        if not _votes_again(reports, learner, number)
    ]


def _votes_again(reports: Mapping[int, Report], store: int, group: int) -> bool:
    report = reports.get(store)
    return report is None or group in report.heals


def moves_of(moving: Moving) -> list[Move]:
    """What is under way, in the planner's words. What is cancelled changes nothing, and keeps its
    group from anything else.
    """
    found: list[Move] = []
    for group, (_, move) in moving.items():
        to, gone = (0, 0) if move.cancelled else (move.to, move.gone)
        kind = Kind.REPLACE if to and gone else Kind.ADD if to else Kind.REMOVE
        found.append(Move(kind, group, Reason.SURPLUS, move.why, to, gone))
    return found
