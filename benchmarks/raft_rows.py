"""What the Raft core costs: µs of CPU for a commit, in one process, without disk or sockets.

    python -m benchmarks.raft_rows

One voter: propose, ready, stable, ready, applied. Three voters: the same at the leader, its appends
and commit index to both followers, their Readies and answers: all three nodes' work is counted, and
every message is delivered. A round is 200 commits of bodies of 1 KB; the best of the rounds counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

from kernel.raft.core import RaftCore
from kernel.raft.messages import Entry, HardState, Membership, Message, Ready, Snapshot
from kernel.raft.options import RaftOptions

BODY = bytes(1024)
COMMITS = 200
ROUNDS = 100


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

    def send(self, messages: Sequence[Message]) -> None:
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


def main() -> None:
    """Print the table."""
    gc.disable()
    print(f"{'voters':>6} {'batch':>6} {'us/commit':>10} {'us/entry':>9} {'entries/s':>10}")
    for count, make in ((1, one_voter), (3, three_voters)):
        for batch in (1, 16, 256):
            spent = measure(make(batch))
            print(
                f"{count:>6} {batch:>6} {spent:>10.2f} {spent / batch:>9.2f}"
                f" {batch / spent * 1e6:>10,.0f}"
            )


if __name__ == "__main__":
    main()
