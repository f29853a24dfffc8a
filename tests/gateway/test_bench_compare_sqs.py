"""The rows of SQS in `benchmarks/compare.py`: what they are held against, and which peers count."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from benchmarks import compare, sqs_rows
from benchmarks.load.report import REPORT_VERSION, Generator, Latency, Server
from benchmarks.load.sqs_report import SqsReport, SqsVerification
from benchmarks.peers import Broker, Weir
from benchmarks.results import Circumstances, Line, Outcome, section
from benchmarks.session import Session
from benchmarks.sqs_peers import Fauxqs, Moto, SqsWeir

if TYPE_CHECKING:
    from collections.abc import Callable


def report(rate: float, share: float = 0.1, server_share: float = 0.5) -> SqsReport:
    latency = Latency(10, 1000.0, 2000.0, 3000.0)
    return SqsReport(
        version=REPORT_VERSION,
        service="fake",
        settings={"mode": "send", "rate": 0.0},
        window_s=1.0,
        messages_per_s=rate,
        send=latency,
        receive=latency,
        delete=latency,
        reconnects=0,
        empty_polls=0,
        generator=Generator("send", rate, share, 1.0),
        generator_saturated=share > 0.8,
        server=Server(server_share, 1e6 / rate, 100.0, 0.1),
        verification=SqsVerification(9, 9, 0, 0, 0, ok=True),
    )


class ScriptedSession(Session):
    """A session whose runs are given by a function of the side's broker and arguments."""

    def __init__(self, answer: Callable[[str, list[str]], SqsReport | None]) -> None:
        names = ("Weir", "fauxqs", "moto")
        brokers = {name: SimpleNamespace(name=name) for name in names}
        super().__init__(Path(), cast("dict[str, Broker]", brokers), rounds=3)
        self.answer = answer
        self.runs: list[tuple[str, list[str]]] = []

    def load_sqs(self, broker: Broker, *arguments: str) -> SqsReport | None:
        self.runs.append((broker.name, list(arguments)))
        return self.answer(broker.name, list(arguments))

    def say(self, text: str) -> None:
        pass


def line_of(outcome: Outcome, figure: str) -> Line:
    return next(line for line in outcome.lines if line.figure == figure)


@pytest.mark.parametrize(("weir", "is_met"), [(4_000, True), (3_900, False)])
def test_sending_is_held_against_fauxqs(weir: float, is_met: bool) -> None:
    rates = {"Weir": weir, "fauxqs": 10_000, "moto": 200}
    session = ScriptedSession(lambda name, _: report(rates[name]))
    line = line_of(sqs_rows.send(session), "messages/s")
    assert line.ratio is not None
    assert (line.ratio.median, line.met) == (weir / 10_000, is_met)
    assert [name for name, _ in session.runs] == ["Weir", "fauxqs", "moto"] * 3


def test_a_long_queue_is_held_against_an_empty_one() -> None:
    session = ScriptedSession(lambda _, words: report(790 if "--backlog" in words else 1000))
    line = line_of(sqs_rows.backlog(session), "messages/s")
    assert line.ratio is not None
    assert (line.ratio.median, line.met) == (0.79, False)


@pytest.mark.parametrize(("share", "is_met"), [(0.009, True), (0.01, False)])
def test_idle_polls_may_cost_a_hundredth_of_a_core(share: float, is_met: bool) -> None:
    session = ScriptedSession(lambda *_: report(1, server_share=share))
    assert line_of(sqs_rows.polls(session), "server, % of a core").met is is_met


@pytest.mark.parametrize("row", sqs_rows.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("missing", [("fauxqs", "moto"), ("Weir",), ("Weir", "fauxqs", "moto")])
def test_every_row_makes_a_section_whoever_is_missing(row, missing: tuple[str, ...]) -> None:
    session = ScriptedSession(lambda *_: report(1000))
    for name in missing:
        del session.brokers[name]
    how = Circumstances("python x", "today", "2 cores", "ext4", "0 0 0", 3, {}, {})
    text = section(row.title, row.measure(session), how)
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_the_rows_of_sqs_have_its_own_peers(tmp_path: Path, monkeypatch) -> None:
    options = SimpleNamespace(peers=compare.PEERS, weir_command=sys.executable, weir_set=[])
    monkeypatch.setattr(Weir, "_accepts", lambda *_: False)
    for peer in (Fauxqs, Moto):
        monkeypatch.setattr(peer, "find", lambda: None)
    found = compare.brokers(sqs_rows.ROWS[0], options, tmp_path)
    assert list(found) == ["Weir"]
    assert isinstance(found["Weir"], SqsWeir)
    assert found["Weir"].url.startswith("http://127.0.0.1:")
    assert "`amqp.enabled=false`" in found["Weir"].settings()
    assert [kind.name for kind in sqs_rows.ROWS[0].sides] == ["Weir", "fauxqs", "moto"]


def test_fauxqs_is_found_where_npm_puts_it(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "node_modules" / "fauxqs"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "1.2.3"}')
    program = package / "dist" / "cli.js"
    node = tmp_path / "node"
    for file in (program, node):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    (tmp_path / "node_modules" / ".bin").mkdir()
    (tmp_path / "node_modules" / ".bin" / "fauxqs").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NODE_PATH", raising=False)
    assert Fauxqs.find() is None
    monkeypatch.setenv("NODE_PATH", os.pathsep.join(["nowhere", str(tmp_path / "node_modules")]))
    assert Fauxqs.find() == program
    assert Fauxqs(tmp_path / "data", program).version() == "fauxqs 1.2.3"
    node.unlink()
    assert Fauxqs.find() is None


@pytest.mark.parametrize(("share", "counts"), [(0.5, True), (0.81, False)])
def test_a_run_of_a_saturated_generator_does_not_count(
    tmp_path: Path, monkeypatch, share: float, counts: bool
) -> None:
    fake = tmp_path / "fake"
    answer = msgspec.json.encode(report(1000, share)).decode()
    fake.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    session = Session(tmp_path, {}, rounds=1)
    broker = cast("Broker", SimpleNamespace(name="B", url="http://x", pids=[1], metrics_url=""))
    assert (session.load_sqs(broker) is not None) is counts
    assert bool(session.notes) is not counts
