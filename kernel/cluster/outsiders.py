"""Who has something of a group that it does not belong to any more, by what stores report. Pure.

A store hears by itself that it was removed, or not: whoever leads sends it nothing more. So the
manager compares, now and then, and tells it (`store.raft_groups.leaving`), as often as it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..common.ids import METADATA_GROUP
from .messages import GroupReport, Leave, Report


def outsiders(
    reports: Mapping[int, Report], members: Collection[int], level: int
) -> list[tuple[int, Leave]]:
    """(store, what it is told). `members`: stores that belong to the cluster, and neither join nor
    leave it; `level`: what is on in group 0.
    """
    return [
        (number, Leave(group.group, group.term, group.last, level))
        for report in reports.values()
        for group in report.groups
        if group.group != METADATA_GROUP and _is_settled(group, report.number)
        for number in members
        if number in reports
        and number not in {*group.voters, *group.learners}
        and group.group not in reports[number].left
    ]


def _is_settled(group: GroupReport, leader: int) -> bool:
    """Whether the members that a leader names have what is committed without anybody else."""
    have = {each.node for each in group.replicas if each.voter and each.match >= group.commit}
    have |= {leader} & {*group.voters}
    return group.serves and not group.joint and 2 * len(have) > len(group.voters)
