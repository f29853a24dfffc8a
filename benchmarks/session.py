"""Runs of the load tester against brokers in turn, and which of them count.

Sides are measured alternately (A B C A B C ...), each by the same command in the same settings,
nothing pinned to a core; both brokers are up and one of them is idle. A run does not count when
its verification failed, or when a generator process used more than 80 % of a core in a closed
loop: then the figures are the generator's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.disk import fdatasync_us
from benchmarks.load.report import Generator, LoadReport, Server
from benchmarks.load.sqs_report import SqsReport
from benchmarks.peers import Broker
from benchmarks.samples import Sample

ROOT = Path(__file__).parents[1]
RUN_TIMEOUT_S = 1800.0  # a million messages through a slow peer, and no more
QUIET_SHARE = 0.25  # of a core: interrupts and this program's own talk stay below

Measure = Callable[[], dict[str, float] | None]


@dataclass(slots=True)
class Session:
    """One comparison: its brokers by side, its rounds, what it has to say beside the figures."""

    folder: Path
    brokers: dict[str, Broker]
    rounds: int = 5
    duration_s: float = 10.0
    cold_messages: int = 1_000_000
    notes: list[str] = field(default_factory=list)
    others_share_max: float = 0.0

    def say(self, text: str) -> None:
        """Talk to the person who waits, on stderr."""
        print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Say it, and keep it for the page (once)."""
        self.say(f"  {text}")
        if text not in self.notes:
            self.notes.append(text)

    def fdatasync_us(self) -> float:
        return fdatasync_us(self.folder)

    def load(self, broker: Broker, *arguments: str) -> LoadReport | None:
        """One run of `weir bench amqp`; None when it did not count, with a note."""
        if broker.metrics_url:
            arguments = ("--metrics-url", broker.metrics_url, *arguments)
        output = self._bench("amqp", broker, arguments)
        if output is None:
            return None
        report = msgspec.json.decode(output, type=LoadReport)
        worst = max(report.generators, key=lambda part: part.cpu_share)
        saturated = report.generator_saturated and not report.settings["rate"]
        return report if self._counts(broker, report.server, worst, saturated) else None

    def load_sqs(self, broker: Broker, *arguments: str) -> SqsReport | None:
        """One run of `weir bench sqs`; None when it did not count, with a note."""
        output = self._bench("sqs", broker, arguments)
        if output is None:
            return None
        report = msgspec.json.decode(output, type=SqsReport)
        saturated = report.generator_saturated
        return report if self._counts(broker, report.server, report.generator, saturated) else None

    def _bench(self, protocol: str, broker: Broker, arguments: tuple[str, ...]) -> bytes | None:
        """The report of one run of the load tester, as JSON."""
        command = [sys.executable, "-m", "gateway", "bench", protocol, "-o", "json"]
        command += ["--url", broker.url, *(f"--pid={pid}" for pid in broker.pids)]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            check=False,
            cwd=ROOT,
            timeout=RUN_TIMEOUT_S,
        )
        if done.returncode:
            self.note(f"{broker.name}: run refused: {done.stderr.decode().strip()}")
            return None
        return done.stdout

    def note_others(self) -> None:
        """Say so when something else was busy during the runs."""
        if self.others_share_max > QUIET_SHARE:
            share = f"{self.others_share_max:.0%}"
            self.note(f"The machine was not quiet: others used up to {share} of a core.")

    def _counts(
        self, broker: Broker, server: Server | None, worst: Generator, saturated: bool
    ) -> bool:
        if server is not None:
            self.others_share_max = max(self.others_share_max, server.others_cpu_share)
        if saturated:
            self.note(
                f"{broker.name}: run refused: generator {worst.role} used "
                f"{worst.cpu_share:.0%} of a core"
            )
            return False
        return True

    def alternate(self, sides: dict[str, Measure]) -> dict[str, dict[str, Sample]]:
        """Measure every side once a round; return side → figure → sample."""
        taken: dict[str, list[dict[str, float] | None]] = {side: [] for side in sides}
        for number in range(1, self.rounds + 1):
            for side, measure in sides.items():
                figures = measure()
                taken[side].append(figures)
                shown = ", ".join(f"{k} {v:,.1f}" for k, v in (figures or {}).items())
                self.say(f"  round {number} {side}: {shown or 'did not count'}")
        return {side: _by_figure(rounds) for side, rounds in taken.items()}


def _by_figure(rounds: list[dict[str, float] | None]) -> dict[str, Sample]:
    names = {name for figures in rounds if figures for name in figures}
    return {name: Sample(tuple((figures or {}).get(name) for figures in rounds)) for name in names}


def load_average() -> str:
    """The load of the last 1, 5 and 15 minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def machine() -> str:
    """The processor and the kernel, as far as they explain figures."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0] if models else "unknown processor"
    return f"{os.cpu_count()} × {model}, Linux {os.uname().release.split('-')[0]}"


def circumstances(command: str, before: str) -> str:
    """How a row was measured, as a line of the results page. `before`: `load_average` then."""
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    loads = f"load average before {before}, after {load_average()}"
    return f"`{command}`, {date}; {machine()}; {loads}"
