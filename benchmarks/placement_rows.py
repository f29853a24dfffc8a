"""How even a large cluster gets by moves alone, how many a join takes, and how long deciding takes.

    python benchmarks/placement_rows.py [--stores 100] [--groups 1000] [--topics 100000]
        [--write benchmarks/RESULTS.md]

The planner of `kernel/cluster/placement` and nothing else: what it plans is made at once, half of
what is under way at a time. Topics have a Zipf load of half of what the stores can do, no queue
takes more than a tenth of a store (`tests/kernel/cluster/placement/world.py`). Groups begin evenly
by number. Then a store joins, one leaves, one is lost; then all figures waver.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from kernel.cluster.placement.view import StoreState
from tests.kernel.cluster.placement.world import Made, PlacedCluster

SPREAD_MAX = 0.15
JOIN_MAX = 1.5
DECIDING_MS_MAX = 1_000
WAVERS = 5
WAVER = 0.03


def measure(stores: int, groups: int, topics: int) -> list[tuple[str, str, str, bool | None]]:
    """(figure, value, bar, met) of each figure."""
    cluster = PlacedCluster(stores, groups)
    cluster.load(topics)
    found: list[tuple[str, str, str, bool | None]] = []

    def add(name: str, made: Made) -> None:
        spread = max(cluster.spread().values())
        text = f"{len(made.moves)} ({made.copies()} copies)"
        found.append((f"{name}: moves", text, "", None))
        found.append((f"{name}: spread then", f"{spread:.1%}", "≤ 15 %", spread <= SPREAD_MAX))
        slowest = made.slowest_ms
        met = slowest <= DECIDING_MS_MAX
        found.append((f"{name}: slowest decision, ms of CPU", f"{slowest:.0f}", "≤ 1,000", met))

    spread = max(cluster.spread().values())
    found.append(("spread by number of groups alone", f"{spread:.1%}", "", None))
    add("from there", cluster.calm())
    kept = sum(each.load.live * len(each.members) for each in cluster.groups.values())
    replicas = sum(len(each.members) for each in cluster.groups.values())
    new = stores + 1
    cluster.add_store(new)
    made = cluster.calm()
    add("a store joins", made)
    ratio = made.copies() * new / replicas
    found.append(
        ("copies, of an even share of replicas", f"{ratio:.2f}", "≤ 1.5", ratio <= JOIN_MAX)
    )
    own = sum(each.copied for each in made.moves if each.to == new) * new / kept
    found.append(("bytes sent to it, of an even share", f"{own:.2f}", "", None))
    ratio = made.copied() * new / kept
    text = f"{ratio:.2f}"
    found.append(("bytes sent to any store", text, "≤ 1.5", ratio <= JOIN_MAX))
    cluster.set_store(5, state=StoreState.LEAVING)
    made = cluster.calm()
    del cluster.stores[5]
    add("a store leaves", made)
    cluster.lose(6)
    add("a store is lost", cluster.calm())
    moves = 0
    for seed in range(WAVERS):
        cluster.waver(WAVER, seed)
        moves += len(cluster.calm().moves)
    found.append((f"moves when all figures waver by 3 %, {WAVERS} times", str(moves), "", None))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--write", type=Path, help="page whose section is renewed")
    options = parser.parse_args()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    found = measure(options.stores, options.groups, options.topics)
    said = {None: "", True: "yes", False: "**no**"}
    rows = "".join(f"| {name} | {text} | {bar} | {said[met]} |\n" for name, text, bar, met in found)
    print(rows)
    if options.write is not None:
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        text = (
            f"## Placement: {options.stores} stores, {options.groups:,} groups, "
            f"{options.topics:,} topics with a Zipf load\n\n"
            f"| figure | | bar | met |\n| --- | --- | --- | --- |\n{rows}\n"
            "- Spread: how far the store that is furthest off its share of bytes written, sent or "
            "kept is off.\n"
            "- A join makes every share smaller, so that stores that were just within the bound "
            "are beyond it: what they give away is in the last figure of the join.\n\n"
            f"`python benchmarks/placement_rows.py`, {date}, load average before {load}.\n"
        )
        results.write(options.write, "placement", text)


if __name__ == "__main__":
    main()
