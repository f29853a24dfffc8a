"""`benchmarks/compare.py`: which runs count, what the ratios are, what becomes of the page."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from benchmarks import amqp_rows, compare, disk, gateway_rows, results
from benchmarks.load.report import (
    REPORT_VERSION,
    Generator,
    Latency,
    LoadReport,
    Server,
    Verification,
)
from benchmarks.peers import Broker, BrokerFailed, Weir
from benchmarks.results import Circumstances, Line, Outcome, replace_section, section
from benchmarks.samples import Sample, number
from benchmarks.session import Session
from kernel.store.drivers.file_system import file_system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]


def report(published: float, share: float = 0.1, rate: float = 0.0) -> LoadReport:
    latency = Latency(100, published / 100, published / 10, published)
    return LoadReport(
        version=REPORT_VERSION,
        broker="Fake 1",
        settings={"rate": rate},
        window_s=1.0,
        published_per_s=published,
        consumed_per_s=published / 2,
        confirm=latency,
        end_to_end=latency,
        generators=[Generator("producer 1", published, share, 1.0)],
        generator_saturated=share > 0.8,
        server=Server(1.0, published / 1000, 100.0, others_cpu_share=0.4),
        fdatasyncs_per_1000=4.0,
        verification=Verification(9, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0, ok=True),
    )


class ScriptedSession(Session):
    """A session whose runs are given by a function of the side's broker and arguments."""

    def __init__(
        self,
        answer: Callable[[str, list[str]], LoadReport | None],
        names: Sequence[str] = ("Weir", "RabbitMQ"),
    ) -> None:
        brokers = {name: SimpleNamespace(name=name) for name in names}
        super().__init__(Path(), cast("dict[str, Broker]", brokers), rounds=3)
        self.answer = answer
        self.runs: list[tuple[str, str]] = []

    def load(self, broker: Broker, *arguments: str) -> LoadReport | None:
        self.runs.append((broker.name, " ".join(arguments)))
        return self.answer(broker.name, list(arguments))

    def say(self, text: str) -> None:
        pass


def by_side(weir: float, classic: float, quorum: float) -> ScriptedSession:
    def answer(name: str, arguments: list[str]) -> LoadReport:
        peer = classic if "classic" in arguments else quorum
        return report(weir if name == "Weir" else peer)

    return ScriptedSession(answer)


def line_of(outcome: Outcome, figure: str) -> Line:
    return next(line for line in outcome.lines if line.figure == figure)


def test_sides_are_measured_in_turn_and_held_against_the_faster_queue() -> None:
    session = by_side(weir=30_000, classic=10_000, quorum=20_000)
    outcome = amqp_rows.one_producer_one_consumer(session)
    assert [name for name, _ in session.runs] == ["Weir", "RabbitMQ", "RabbitMQ"] * 3
    line = line_of(outcome, "published/s")
    assert line.ratio is not None
    assert (line.ratio.text(), line.met) == ("1.50 (1.50..1.50)", True)
    assert any("RabbitMQ quorum" in note for note in outcome.notes)


def test_a_latency_is_held_against_the_lower_one() -> None:
    outcome = amqp_rows.steady_latency(by_side(weir=32.0, classic=20.0, quorum=80.0))
    line = line_of(outcome, "end-to-end p99 ms")
    assert line.ratio is not None
    assert (line.ratio.median, line.met) == (1.6, False)


def test_a_round_that_does_not_count_is_left_out_of_the_ratio() -> None:
    taken = iter([report(10_000), None, report(30_000)])
    session = ScriptedSession(lambda name, _: next(taken) if name == "Weir" else report(10_000))
    line = line_of(amqp_rows.one_producer_one_consumer(session), "published/s")
    assert line.ratio is not None
    assert line.ratio.values == (1.0, None, 3.0)
    assert line.cells["Weir"].text() == "20,000 (10,000..30,000)"


def test_a_peer_that_never_counts_leaves_no_ratio_and_no_verdict() -> None:
    session = ScriptedSession(lambda name, _: report(10_000) if name == "Weir" else None)
    line = line_of(amqp_rows.one_producer_one_consumer(session), "published/s")
    assert (line.ratio, line.met) == (None, None)


def test_many_queues_are_held_against_one_queue_of_the_same_broker() -> None:
    def answer(_: str, arguments: list[str]) -> LoadReport:
        return report(8_000 if arguments[-1] == "1000" else 10_000)

    line = line_of(amqp_rows.many_queues(ScriptedSession(answer)), "1,000 queues over one")
    assert line.cells["Weir"].median == pytest.approx(0.8)
    assert line.met is True


CLUSTERS = (gateway_rows.WEIR, gateway_rows.CLUSTER, gateway_rows.QUORUM)


def test_a_cluster_is_held_against_one_node_in_cpu_and_against_a_cluster_in_rates() -> None:
    published = dict(zip(CLUSTERS, (10_000, 35_000, 20_000), strict=True))
    session = ScriptedSession(lambda name, _: report(published[name]), CLUSTERS)
    outcome = gateway_rows.three_stores(session)
    assert [("quorum" in words) for _, words in session.runs] == [False, False, True] * 3
    cpu, rate = (line_of(outcome, each) for each in ("server CPU us/msg", "published/s"))
    assert (cpu.ratio, cpu.met) == (Sample((3.5, 3.5, 3.5)), True)
    assert (rate.ratio, rate.met) == (Sample((1.75, 1.75, 1.75)), True)


@pytest.mark.parametrize(("published", "met"), [(34_000, True), (37_000, False)])
def test_stores_without_a_replica_cost_a_group_nothing(published: int, met: bool) -> None:
    sides = {gateway_rows.CLUSTER: 35_000, gateway_rows.FIVE: published}
    session = ScriptedSession(lambda name, _: report(sides[name]), list(sides))
    assert line_of(gateway_rows.five_stores(session), "server CPU us/msg").met is met


@pytest.mark.parametrize(("added_us", "met"), [(900, True), (1_100, False)])
def test_what_a_gateway_adds_to_a_latency_has_a_bound(added_us: float, met: bool) -> None:
    p50_us = {gateway_rows.WEIR: 500.0, gateway_rows.APART: 500.0 + added_us}
    session = ScriptedSession(lambda name, _: report(p50_us[name] * 100), list(p50_us))
    line = line_of(gateway_rows.apart(session), "end-to-end p50 ms, added")
    assert line.cells[gateway_rows.APART].median == pytest.approx(added_us / 1_000)
    assert line.met is met


@pytest.mark.parametrize("row", gateway_rows.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("missing", range(4))
def test_every_row_of_clusters_makes_a_section_whoever_is_missing(
    row: amqp_rows.Row, missing: int
) -> None:
    names = [kind.name for number, kind in enumerate(row.sides) if number != missing]
    session = ScriptedSession(lambda *_: report(10_000), names)
    how = Circumstances("python x", "today", "2 cores", "ext4", "0 0 0", 3, {}, {})
    text = section(row.title, row.measure(session), how)
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


@pytest.mark.parametrize("row", amqp_rows.ROWS, ids=lambda row: row.name)
def test_every_row_makes_a_section_without_a_peer(row: amqp_rows.Row) -> None:
    session = by_side(weir=10_000, classic=1, quorum=1)
    del session.brokers["RabbitMQ"]
    weir = session.brokers["Weir"]
    weir.stop = weir.start = lambda: None  # type: ignore[method-assign]
    weir.metrics_url = "http://127.0.0.1/metrics"
    session.fdatasync_us = lambda: 50.0  # type: ignore[method-assign]
    how = Circumstances("python x", "today", "2 cores", "ext4", "0 0 0", 3, {}, {})
    text = section(row.title, row.measure(session), how)
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    assert text.startswith(f"## {row.title}\n")


def run_session(tmp_path: Path, answer: LoadReport, code: int = 0) -> tuple[Session, Broker]:
    """A session whose generator is a small program that prints `answer`."""
    session = Session(tmp_path, {}, rounds=1)
    broker = cast("Broker", SimpleNamespace(name="B", url="amqp://x", pids=[1], metrics_url=""))
    fake = tmp_path / "fake"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nprint({msgspec.json.encode(answer).decode()!r})\n"
        f"print('it was lost', file=sys.stderr)\nsys.exit({code})\n"
    )
    fake.chmod(0o755)
    return session, broker


def test_what_others_used_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, broker = run_session(tmp_path, report(1000))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "fake"))
    session.load(broker)
    session.note_others()
    assert session.notes == ["The machine was not quiet: others used up to 40% of a core."]


@pytest.mark.parametrize(
    ("share", "rate", "counts"), [(0.5, 0.0, True), (0.81, 0.0, False), (0.81, 2000.0, True)]
)
def test_a_saturated_generator_is_refused_in_a_closed_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, rate: float, counts: bool
) -> None:
    session, broker = run_session(tmp_path, report(1000, share, rate))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "fake"))
    assert (session.load(broker) is not None) is counts
    assert bool(session.notes) is not counts


def test_a_run_that_failed_its_verification_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, broker = run_session(tmp_path, report(1000), code=1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "fake"))
    assert session.load(broker) is None
    assert session.notes == ["B: run refused: it was lost"]


def test_samples_are_medians_with_their_spread() -> None:
    sample = Sample((3.0, None, 1.0, 2.0))
    assert (sample.median, sample.text()) == (2.0, "2.00 (1.00..3.00)")
    assert Sample((None,)).text() == "–"
    assert sample.over(Sample((1.5, 1.0, 0.0, 4.0))).values == (2.0, None, None, 0.5)
    assert [number(value) for value in (0.123, 12.34, 12_345.6)] == ["0.12", "12.3", "12,346"]


def test_a_section_is_replaced_in_its_place_and_others_stay() -> None:
    page = replace_section(results.PREAMBLE, "a", "## A\n\nold\n")
    page = replace_section(page, "b", "## B\n")
    again = replace_section(page, "a", "## A\n\nnew\n")
    assert again == page.replace("old", "new")
    assert again.index("## A") < again.index("## B")
    assert replace_section(again, "a", "## A\n\nnew\n") == again


def test_the_page_is_made_when_it_is_not_there(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    results.write(page, "a", "## A\n")
    results.write(page, "b", "## B\n")
    text = page.read_text()
    assert text.startswith("# Results\n")
    assert text.endswith("<!-- row b -->\n## B\n<!-- end b -->\n")
    assert "<!-- row a -->\n## A\n<!-- end a -->" in text


def test_strace_summaries_are_added_up() -> None:
    summary = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 86.92    0.000206          13      1502           fdatasync
 13.08    0.000031           2        15         2 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.000237           7      1517         2 total
"""
    assert disk.parse_strace(summary) == 1517
    assert disk.parse_strace("") == 0


def test_the_disk_probe_measures_real_syncs(tmp_path: Path) -> None:
    assert disk.fdatasync_us(tmp_path) > 0
    assert not list(tmp_path.iterdir())


def test_the_file_system_is_found() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"


def test_a_weir_that_does_not_serve_is_told_with_its_words(tmp_path: Path) -> None:
    command = tmp_path / "weir"
    command.write_text("#!/bin/sh\necho 'no room on the disk' >&2\nexit 1\n")
    command.chmod(0o755)
    weir = Weir(tmp_path / "data", command, ["amqp.limits.channel_max=9"])
    with pytest.raises(BrokerFailed, match="no room on the disk"):
        weir.start()
    assert "`amqp.limits.channel_max=9`" in weir.settings()
    weir.close()
    assert not (tmp_path / "data").exists()


async def test_the_command_lists_its_rows_and_refuses_unknown_ones() -> None:
    listed = await run("--list")
    assert listed[0] == 0
    assert [line.split()[0] for line in listed[1].splitlines()] == [r.name for r in compare.ROWS]
    code, _, err = await run("--rows", "amqp-nothing")
    assert code == 2
    assert "no such row: amqp-nothing" in err


async def run(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "benchmarks" / "compare.py"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
