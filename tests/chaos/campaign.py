"""A run: load, one fault after the other, what each led to, and the verdict at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.checker import Violation, around, check, pauses, retried
from tests.chaos.clients.lanes import LANES
from tests.chaos.history import Acked, Event, Fault, Got, Sent
from tests.chaos.load import Programs, prepare
from tests.chaos.plan import CHANGES, Kind, Round
from tests.chaos.site import Cluster, Node

CLAIM_SECONDS = 10.0
"""A new leader waits so long for gateways to say what they hold
(docs/design/delivery.md#what-a-crash-may-repeat)."""

FLOW_SECONDS = 60.0
PLANNED_SECONDS = 2.0
"""Publishers pause no longer when an operator changes the cluster, and nothing fails."""

AT_ONCE = frozenset({Kind.KILL_LEADER, Kind.KILL_FOLLOWER, Kind.KILL_GATEWAY, Kind.ROLLING_RESTART})
"""Faults after which a client knows at once that its connection is gone, or needs not know: the
pause in publishing is the cluster's."""

QUIET_SECONDS = 11.0
"""Longer than every lease of the load: what was not acked would come again."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """Of a run."""

    violations: list[Violation] = field(default_factory=list)
    history: list[Event] = field(default_factory=list)
    pauses: list[tuple[Round, dict[str, float]]] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    uneven: str = ""
    """Which store holds too much or too little, once all is calm; empty: none."""

    @property
    def failed(self) -> bool:
        return bool(self.violations or self.missing or self.uneven)


class Campaign:
    """One site, its load and its faults."""

    def __init__(
        self,
        site: Cluster | Node,
        folder: Path,
        names: Sequence[str],
        election_timeout_ms: int,
        say: Say,
    ) -> None:
        self._site = site
        self._folder = folder
        self._names = tuple(names)
        self._election = election_timeout_ms / 1_000
        self._say = say
        self._pause_max = math.inf
        self.outcome = Outcome()

    def run(
        self,
        rounds: Sequence[Round],
        *,
        pause_max: float = math.inf,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> Outcome:
        """All rounds, and the verdict. `pause_max`: of publishers after faults that clients or
        cluster notice at once, in seconds. Raises ChaosError if the processes are in such trouble
        that no verdict can be given.
        """
        self._pause_max = pause_max
        began = time.monotonic()
        self._site.start()
        prepare(self._names, self._site.admin, self._site.gateways)
        programs = Programs(self._names, self._site.gateways, self._folder)
        try:
            programs.until_flowing(0, FLOW_SECONDS)
            self._say(f"all lanes flow after {time.monotonic() - began:.1f} s")
            for each in rounds:
                self._round(programs, each)
            self.outcome.missing = programs.drain()
            time.sleep(quiet_seconds)
            self.outcome.uneven = self._site.uneven(self._say)
        finally:
            programs.stop()
            self.outcome.history = programs.history
        self._judge()
        return self.outcome

    def _round(self, programs: Programs, each: Round) -> None:
        time.sleep(each.before)
        before = sum(programs.counts.values())
        began = time.monotonic()
        done = self._site.strike(each)
        self._site.settle()
        programs.until_flowing(time.monotonic(), FLOW_SECONDS)
        ended = time.monotonic()
        programs.tell(Fault(f"round {each.number}: {each.name}: {done}", began, ended))
        found = pauses(programs.snapshot(), self._names, began, ended)
        self.outcome.pauses.append((each, found))
        worst = max(found, key=lambda name: found[name])
        rate = sum(programs.counts.values()) - before
        self._say(
            f"round {each.number}: {each.name}: {done}; well after {ended - began:.1f} s, "
            f"{rate} messages, longest pause {found[worst]:.2f} s ({worst})"
        )
        if each.kind is Kind.ROLLING_RESTART:
            self.outcome.violations += retried(programs.snapshot(), began, ended)
        limit = self._limit(each)
        for name, seconds in found.items():
            if seconds > limit:
                text = f"no publish for {seconds:.2f} s, the limit is {limit:.1f} s"
                self.outcome.violations.append(
                    Violation("paused", name, f"round {each.number}", text)
                )

    def _limit(self, each: Round) -> float:
        """How long publishers may pause."""
        if each.kind in CHANGES and each.during is None:
            return min(PLANNED_SECONDS, self._pause_max) if self._pause_max < math.inf else math.inf
        at_once = (each.during or each.kind) in AT_ONCE and isinstance(self._site, Cluster)
        return self._pause_max if at_once else math.inf

    def _judge(self) -> None:
        promises = {name: LANES[name].promise for name in self._names}
        grace = 2 * self._election + CLAIM_SECONDS
        self.outcome.violations += check(self.outcome.history, promises, grace)


def report(outcome: Outcome, again: str, say: Say, most: int = 5) -> None:
    """What people are told at the end; `again`: the command that replays."""
    sent = [each for each in outcome.history if isinstance(each, Sent)]
    got = [each for each in outcome.history if isinstance(each, Got)]
    stored = {each.ident for each in sent if each.outcome == "ok"}
    acked = sum(isinstance(each, Acked) and each.sure for each in outcome.history)
    say(
        f"{len(stored)} messages answered with ok ({len(sent) - len(stored)} attempts failed), "
        f"{len(got)} came ({sum(each.marked for each in got)} marked, "
        f"{len(got) - len({each.ident for each in got})} repeats), {acked} acks answered"
    )
    for name, count in outcome.missing.items():
        say(f"LOST: {count} messages of {name} never came")
    if outcome.uneven:
        say(f"UNEVEN: {outcome.uneven}")
    for violation in outcome.violations[:most]:
        say(f"FAILED {violation}")
        for event in around(outcome.history, violation.ident):
            say(f"    {event}")
    if len(outcome.violations) > most:
        say(f"... and {len(outcome.violations) - most} more")
    if outcome.failed:
        say(f"again: {again}")
