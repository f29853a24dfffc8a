"""Sweeps the index of a queue behind a message that nobody takes.

Pages of an index are dropped from the front, up to the oldest message that somebody needs. One
that is stuck keeps all the pages behind it, 38 bytes a run, though nearly all of their messages
are acked. So the leader looks at such an index, some pages at a time, and says in the log which
runs are dead (SWEEP); every replica makes holes of them (`runs`). What the leader names was acked,
and its dispatchers were told, before it looked: nobody asks the index for it any more.

Streams (whose retention trims them) and reference lists of the topic tree are left as they are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ...api.model import TopicKind
from ...common.ids import Offset
from ..group_state.progress import unacked_by_any
from ..group_state.state import QueueState
from ..index.features import Feature
from ..index.run_page import RUNS_PER_PAGE, RunPage
from ..index.runs import RunIndex
from ..log_commands.commands import Sweep

SWEEP_PAGES = 16
"""Pages of one SWEEP: 4,096 runs, a millisecond or two to look at and as long to apply."""

SAVED_SHARE_MIN = 0.25
"""A SWEEP has to save such a share of the runs that it is about."""

Ranges = Sequence[tuple[int, int]]
"""(start, end) of offsets, rising."""


def is_swept(queue: QueueState) -> bool:
    """Whether a queue's index is ever swept."""
    return queue.pending_acks is None and queue.topic.options.kind is not TopicKind.STREAM


def plan(queue: QueueState, start: int) -> tuple[Sweep | None, int]:
    """What to do about the pages from offset `start` on, None if it is not worth it; and where to
    go on, -1 at the end. Changes nothing.
    """
    index = queue.index
    start = max(start, index.head)
    if start >= index.tail:
        return None, -1
    pages, start, end = index.full_pages(start, SWEEP_PAGES)
    if not pages:
        return None, -1
    runs = [first for page in pages for first in page.first]
    dead: list[tuple[int, int]] = []
    saved = at = 0
    for low, high in (*unacked_by_any(list(queue.groups.values()), start, end), (end, end)):
        # Runs number `at` to `live` are dead, the one with `low` in it lives.
        live = bisect_right(runs, low) - 1 if low < end else len(runs)
        if live - at > 1:
            dead.append((runs[at], runs[live] if live < len(runs) else end))
            saved += live - at - 1
        at = max(at, bisect_right(runs, high - 1))
    if saved < SAVED_SHARE_MIN * len(runs) and not _is_sparse(pages):
        return None, end
    return Sweep(queue.id, Offset(start), Offset(end), tuple(dead)), end


def _is_sparse(pages: Sequence[RunPage]) -> bool:
    """Whether earlier sweeps have left pages so short that they should become one."""
    runs = sum(len(page.first) for page in pages)
    return runs < (1 - SAVED_SHARE_MIN) * RUNS_PER_PAGE * len(pages) and len(pages) > 1


def carry_out(queue: QueueState, command: Sweep) -> int:
    """Apply a SWEEP; the runs saved. What somebody needs is left as it is."""
    if not is_swept(queue):
        return 0
    needed = unacked_by_any(list(queue.groups.values()), command.start, command.end)
    dead: list[tuple[int, int]] = []
    at = 0
    for first, end in command.ranges:
        while at < len(needed) and needed[at][1] <= first:
            at += 1
        if first < end and (at == len(needed) or needed[at][0] >= end):
            dead.append((first, end))
    return punch(queue.index, command.start, command.end, dead)


def punch(index: RunIndex, start: int, end: int, ranges: Ranges) -> int:
    """Make a hole of the runs of each range in the full pages that cover offsets [start, end), and
    put these pages together; the runs saved. The ranges rise, and begin and end where runs do;
    otherwise nothing happens.
    """
    old = index.whole_pages(start, end)
    bounds = array("Q")
    for page in old:
        bounds.extend(page.first)
    bounds.append(end)
    if not old or not all(_is_in(bounds, first) and _is_in(bounds, stop) for first, stop in ranges):
        return 0
    made = _punched(old, end, ranges)
    index.replace(start, end, made)
    return len(bounds) - 1 - sum(len(page.first) for page in made)


def _is_in(bounds: array[int], offset: int) -> bool:
    at = bisect_left(bounds, offset)
    return at < len(bounds) and bounds[at] == offset


def _punched(pages: Sequence[RunPage], end: int, ranges: Ranges) -> list[RunPage]:
    """New pages with the runs of some pages up to offset `end`, a hole for each of the ranges."""
    made = [RunPage()]

    def room() -> RunPage:
        if len(made[-1].first) == RUNS_PER_PAGE:
            made.append(RunPage())
        return made[-1]

    at = 0
    for number, page in enumerate(pages):
        firsts = page.first
        page_end = pages[number + 1].first[0] if number + 1 < len(pages) else end
        run = 0
        while run < len(firsts):
            while at < len(ranges) and ranges[at][1] <= firsts[run]:
                at += 1
            first, stop = ranges[at] if at < len(ranges) else (end, end)
            if first <= firsts[run]:
                if first == firsts[run]:
                    room().add_run(first, page.index[run], page.time_ms[run], 0, Feature.HOLE)
                run = bisect_left(firsts, stop, run)
                continue
            to = room()
            until = min(bisect_left(firsts, first, run), run + RUNS_PER_PAGE - len(to.first))
            to.add_runs(page, run, until, firsts[until] if until < len(firsts) else page_end)
            run = until
    return made
