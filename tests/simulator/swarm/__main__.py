"""Runs seeds: `python -m tests.simulator.swarm --seeds 400 --events 2000 --processes 2`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from .run import Outcome, Run, run_seed, seldom_collect

WANTED = (
    *("leader change with an uncommitted tail", "conflict truncation", "snapshot install"),
    *("joint change", "torn tail", "corrupt synced record", "rewrite", "lease expiry"),
    *("batch retry with unknown outcome", "session re-claim", "replica healed"),
    *("entry given up", "raise answered", "raise refused", "command refused before its level"),
    *("hit when a level was proposed", "hit when a level was applied by the leader"),
    *("level learnt from a snapshot", "restart with a checkpoint from before a level"),
    *("old build ended by what it does not understand", "group left", "came back"),
    *("replica moved", "store left", "group born", "group grown", "hit in a birth"),
    *("resize answered", "queue sealed", "RETIRE applied by the leader"),
    *("hit when PLAN was applied", "hit when SEAL was applied", "hit when RESIZE was applied"),
    *("hit when DRAINED was applied", "hit when RETIRE was applied"),
    *("hit when SPREAD_PLAN was applied", "hit when SPREAD_RESIZE was applied"),
    *("hit when ADD_WINDOW was applied", "token of a number that was used again"),
    *("key went on in another queue", "counted over a resize"),
    *("ring learnt while something was on its way", "spread answered", "hold"),
    *("transaction during a resize", "purge during a resize", "delete during a resize"),
    *("move during a resize", "lease kept over a resize", "size: grow", "size: shrink"),
    *("half message ended during a resize", "redrive during a resize"),
    *("transaction during a spread", "purge during a spread", "delete during a spread"),
    *("move during a spread", "redrive during a spread", "half message ended during a spread"),
    *("transaction in steps during a spread", "lease kept over a resize that spreads"),
    *("all keys told", "free keys told", "ADD_WINDOW applied by the leader"),
    *("entry held was taken over", "entry kept was taken over"),
    *("groups with little written before others", "delivery put off"),
)
"""Each has to happen WANTED_MIN times over all seeds: else the seeds say nothing."""

WANTED_MIN = 50
EVENTS = 2_000
"""Of each seed, for which WANTED_MIN is meant: runs of fewer events want as much less."""


def main() -> int:
    """Exit code 1 if a seed failed, or something happened too rarely."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.swarm")
    parser.add_argument("--seed", type=int, help="replay this seed and tell what happened")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--any-counts", action="store_true", help="do not ask for each event")
    asked = parser.parse_args()
    if asked.seed is not None:
        return _replay(asked.seed, asked.events)
    begun = time.monotonic()
    counters: Counter[str] = Counter()
    events = failed = 0
    tasks = [(seed, asked.events) for seed in range(asked.first, asked.first + asked.seeds)]
    with multiprocessing.get_context("spawn").Pool(asked.processes, seldom_collect) as pool:
        for outcome in pool.imap_unordered(run_seed, tasks, chunksize=4):
            counters.update(outcome.counters)
            events += outcome.events
            if outcome.broken or outcome.crash:
                failed += 1
                _tell(outcome, asked.events)
    took = time.monotonic() - begun
    least = WANTED_MIN * min(asked.events, EVENTS) // EVENTS
    rare = [each for each in WANTED if counters[each] < least and not asked.any_counts]
    for name, count in sorted(counters.items()):
        print(f"  {count:8} {name}")
    for name in rare:
        print(f"too rare: {name} happened {counters[name]} times, not {least}")
    done = f"{asked.seeds - failed} passed, {failed} failed"
    print(f"{done} of {asked.seeds} seeds, {events} events ({events / took:.0f}/s) in {took:.0f}s")
    return 1 if failed or rare else 0


def _tell(outcome: Outcome, events: int) -> None:
    invariant, what = outcome.broken[0] if outcome.broken else ("crash", outcome.crash)
    print(f"seed {outcome.seed}: {invariant}: {what}")
    print(f"  make sim SEED={outcome.seed} EVENTS={events}", flush=True)


def _replay(seed: int, events: int) -> int:
    begun = time.process_time()
    outcome = Run(seed, events).go()
    for note in outcome.notes:
        print(note)
    for name, count in sorted(outcome.counters.items()):
        print(f"  {count:8} {name}")
    took = time.process_time() - begun
    print(f"seed {seed}: {outcome.events} events, {outcome.virtual_s:.0f} s in {took:.1f} s of CPU")
    for invariant, what in outcome.broken[:5]:
        print(f"BROKEN {invariant}: {what}")
    if outcome.crash:
        print(outcome.crash)
    return 1 if outcome.broken or outcome.crash else 0


if __name__ == "__main__":
    sys.exit(main())
