"""What the Raft core costs: µs of CPU for a commit, in one process, without disk or sockets.

    python benchmarks/raft_rows.py [--write benchmarks/RESULTS.md]

One voter: propose, ready, stable, ready, applied. Three voters: the same at the leader, its appends
and commit index to both followers, their Readies and answers: all three nodes' work is counted, and
every message is delivered. A round is 200 commits of bodies of 1 KB; the best of the rounds counts.

Its share of a single node is held against what the kernel alone spends on a commit, disk thread
included and no adapter: of one message at a time, where every message is a commit, and of what
WAVE clients bring at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.kernel_load import Publisher, make_topic, open_at
from benchmarks.kernel_speed import WAVE, Waves, made
from gateway.app import SWITCH_INTERVAL_S, loop_factory
from kernel.api.model import TopicOptions
from kernel.raft.core import RaftCore
from kernel.raft.messages import Entry, HardState, Membership, RaftMessage, Ready, Snapshot
from kernel.raft.options import RaftOptions

BODY = bytes(1024)
COMMITS = 200
ROUNDS = 100
SHARE_MAX = 0.10
LONE = 2_000
"""Messages one by one, in a round of the kernel."""

BURST = 60_000
KERNEL_ROUNDS = 5


class Terms:
    """A log of which nobody asks for more than terms: everything is level."""

    def __init__(self) -> None:
        self.last_term = 0
        self.last = 0

    def first_index(self) -> int:
        return 1

    def last_index(self) -> int:
        return self.last

    def term(self, index: int) -> int:
        return self.last_term if index else 0

    def entries(self, low: int, high: int, max_bytes: int) -> Sequence[Entry] | None:
        raise AssertionError(f"entries {low} to {high} are not kept")

    def snapshot(self) -> Snapshot | None:
        return None

    def write(self, ready: Ready) -> None:
        """Note the last entry."""
        if ready.entries:
            self.last, self.last_term = ready.entries[-1].index, ready.entries[-1].term


class Group:
    """Voters 1 to `count`; 1 leads."""

    def __init__(self, count: int) -> None:
        self.logs = [Terms() for _ in range(count)]
        members = Membership(tuple(range(1, count + 1)))
        self.cores = [
            RaftCore(
                RaftOptions(node), log, HardState(0, 0, 0), members, 0, lambda ticks: ticks // 2
            )
            for node, log in enumerate(self.logs, 1)
        ]
        self.applied = 0
        self.cores[0].campaign()
        while self.turn():
            pass

    def turn(self) -> bool:
        """Every node does what its core asks for; False if none does."""
        busy = False
        for core, log in zip(self.cores, self.logs, strict=True):
            if core.has_ready():
                busy = True
                ready = core.ready()
                self.send(ready.messages_now)
                log.write(ready)
                if ready.number:
                    core.stable(ready.number)
                self.send(ready.messages_after_sync)
                if ready.committed:
                    core.applied(ready.committed[-1].index)
                    self.applied += len(ready.committed)
        return busy

    def send(self, messages: Sequence[RaftMessage]) -> None:
        """Deliver at once."""
        for message in messages:
            self.cores[message.to - 1].step(message)


def one_voter(batch: int) -> Callable[[], None]:
    """A commit of the single-node store, as its driver makes it."""
    group = Group(1)
    core, log = group.cores[0], group.logs[0]
    bodies = [BODY] * batch

    def commit() -> None:
        core.propose(bodies)
        ready = core.ready()
        log.write(ready)
        core.stable(ready.number)
        ready = core.ready()
        core.applied(ready.committed[-1].index)

    return commit


def three_voters(batch: int) -> Callable[[], None]:
    """A commit until all three have applied it and told so."""
    group = Group(3)
    leader = group.cores[0]
    bodies = [BODY] * batch

    def commit() -> None:
        leader.propose(bodies)
        while group.turn():
            pass

    return commit


def measure(commit: Callable[[], None]) -> float:
    """µs of CPU a commit, at best."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(COMMITS):
            commit()
        best = min(best, time.process_time() - started)
    return best / COMMITS * 1e6


class Spent:
    """CPU and commits since it was made."""

    def __init__(self, commits: Callable[[], int]) -> None:
        self._commits = commits
        self._before = commits()
        self._cpu_s = time.process_time()

    def us_a_commit(self) -> float:
        """Of the whole process."""
        return (time.process_time() - self._cpu_s) / (self._commits() - self._before) * 1e6


async def kernel(data: Path) -> dict[str, tuple[float, float]]:
    """µs of CPU a commit, and messages a commit, at best: of messages alone, and of waves."""
    local = await open_at(data)
    topic = await make_topic(local, "q", TopicOptions())
    session = local.client.open_session("bench")

    def commits() -> int:
        return local.store.commits

    lone = float("inf")
    waves, sizes = float("inf"), 0.0
    burst = Waves(local, session, topic, alike=True)
    for _ in range(KERNEL_ROUNDS):
        publisher, spent = Publisher(local, session, [topic]), Spent(commits)
        for _ in range(LONE):
            await publisher.publish(1)
        lone = min(lone, spent.us_a_commit())
        messages, before, spent = made(BURST), commits(), Spent(commits)
        await burst.publish(messages)
        sizes = BURST / (commits() - before)
        waves = min(waves, spent.us_a_commit())
    await local.stop()
    return {"one message": (lone, 1.0), f"{WAVE} batches of 100 under way": (waves, sizes)}


def main() -> None:
    """Print the table, and the core's share of a node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="page whose section is renewed")
    options = parser.parse_args()
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    gc.disable()
    costs: dict[tuple[int, int], float] = {}
    print(f"{'voters':>6} {'batch':>6} {'us/commit':>10} {'us/entry':>9} {'entries/s':>10}")
    for count, make in ((1, one_voter), (3, three_voters)):
        for batch in (1, 16, 256):
            spent = costs[count, batch] = measure(make(batch))
            print(
                f"{count:>6} {batch:>6} {spent:>10.2f} {spent / batch:>9.2f}"
                f" {batch / spent * 1e6:>10,.0f}"
            )
    gc.enable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as data,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        whole = runner.run(kernel(Path(data)))
    for name, (spent, messages) in whole.items():
        share = costs[1, 1] / spent
        print(f"{name}: {spent:.0f} us of CPU a commit ({messages:.0f} messages): {share:.1%} Raft")
    if options.write is not None:
        results.write(options.write, "raft-core", section(costs, whole, load))


def section(
    costs: dict[tuple[int, int], float], whole: dict[str, tuple[float, float]], load: str
) -> str:
    """The row as a section of the results page."""
    rows = "".join(
        f"| {voters} voters, {batch} entries at once | {spent:.1f} | {spent / batch:.2f} | | |\n"
        for (voters, batch), spent in costs.items()
    )
    for name, (spent, messages) in whole.items():
        share = costs[1, 1] / spent
        met = "yes" if share <= SHARE_MAX else "**no**"
        rows += (
            f"| kernel alone, {name} | {spent:.0f} | {spent / messages:.2f} "
            f"| {share:.1%} ≤ {SHARE_MAX:.0%} | {met} |\n"
        )
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        "## Raft: CPU of the core, and its share of a single node\n\n"
        "| | us a commit | us a message | share of the core, bar | met |\n"
        f"| --- | --- | --- | --- | --- |\n{rows}\n"
        "- The share is that of a commit with one voter and one entry in all CPU time of the kernel"
        " for a commit, its disk thread included. An adapter only makes it smaller.\n\n"
        f"`python benchmarks/raft_rows.py`, {date}, the least of {ROUNDS} and {KERNEL_ROUNDS} "
        f"rounds, load average before {load}.\n"
    )


if __name__ == "__main__":
    main()
