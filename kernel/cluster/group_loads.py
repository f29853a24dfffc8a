"""What each Raft group costs its stores, made of what stores report: rates, averaged over hours.
Pure, and in memory: a manager that is new begins anew, with what it has seen so far.

A group is counted by what its leader reports. Two reports of one process are compared; whoever has
begun to lead, or was started anew, is compared with itself from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp

from .messages import GroupReport
from .placement.view import Load

OVER_MS = 3_600_000
"""What was so long ago weighs 1/e of what is now: what lasts minutes moves nothing."""


class _Average:
    """Of one group. What it was before anybody looked is not known, and counts for nothing."""

    __slots__ = ("read", "weight", "written")

    def __init__(self) -> None:
        self.written = self.read = self.weight = 0.0

    def add(self, written: float, read: float, passed_ms: int) -> None:
        """These were the rates for so long."""
        kept = exp(-passed_ms / OVER_MS)
        self.written = self.written * kept + written * (1 - kept)
        self.read = self.read * kept + read * (1 - kept)
        self.weight = self.weight * kept + (1 - kept)


class GroupLoads:
    """Of the groups of a cluster."""

    def __init__(self) -> None:
        self._averages: dict[int, _Average] = {}
        self._seen: dict[int, tuple[int, int, GroupReport]] = {}
        """By group: when, of which store, and what it has said."""
        self._live: dict[int, int] = {}

    def take(self, led: Iterable[tuple[int, GroupReport]], now_ms: int) -> None:
        """(store, report) of each group that has a leader, which is this store."""
        for store, report in led:
            group = report.group
            self._live[group] = report.live
            before = self._seen.get(group)
            if before is None or before[1] != store or not _goes_on(before[2], report):
                self._seen[group] = now_ms, store, report
                continue
            passed_ms = now_ms - before[0]
            if passed_ms <= 0:
                continue
            written = (report.written - before[2].written) * 1_000 / passed_ms
            sent = (report.sent - before[2].sent) * 1_000 / passed_ms
            followers = len({*report.voters, *report.learners} - {store})
            average = self._averages.setdefault(group, _Average())
            average.add(written, sent + written * followers, passed_ms)
            self._seen[group] = now_ms, store, report

    def of(self, group: int) -> Load:
        """What is known of a group; nothing: zeros."""
        average = self._averages.get(group)
        live = float(self._live.get(group, 0))
        if average is None or not average.weight:
            return Load(live=live)
        return Load(average.written / average.weight, average.read / average.weight, live)


def _goes_on(before: GroupReport, now: GroupReport) -> bool:
    """Whether both are of one process, so that what has grown meanwhile is known."""
    return now.written >= before.written and now.sent >= before.sent
