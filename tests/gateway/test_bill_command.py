"""`weir bill`: what it asks of the billing jobs, and how it words what they answer.

The jobs themselves are proved in tests/spark; here a stand-in answers for them where they need
Spark, and the real module where they do not.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import gateway.cli
from gateway.commands.common.output import ExitCode
from gateway.commands.tools import bill
from gateway.reporting import node_metering
from metering.schema import parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from spark import session
from spark.bill import BILLING_ERRORS, Summary
from spark.period import Period
from tests.gateway.serving import serving
from tests.spark.samples import record, write_archive

if TYPE_CHECKING:
    from collections.abc import Sequence


def summary(problems: Sequence[str] = ()) -> Summary:
    return Summary(
        run_id="0123456789abcdef",
        period="2026-11",
        directory="bills/period=2026-11/run=0123456789abcdef",
        currency="EUR",
        minor_digits=2,
        total=Decimal("12.30"),
        invoices=1,
        files=1,
        records=3,
        duplicates=0,
        quarantined=0,
        usage_rows=2,
        price_book="weir",
        price_book_sha256="00",
        archive_sha256="00",
        code_sha256="00",
        problems=tuple(problems),
    )


class Engine(SimpleNamespace):
    """Stands in for `spark.bill`."""

    BILLING_ERRORS = BILLING_ERRORS
    Period = Period

    def load_price_book(self, file: Path) -> None:
        """Takes any."""

    def run(self, *arguments: Any) -> Summary:
        self.asked = arguments
        return self.answer

    def render_invoices(self, answer: Summary) -> str:
        return f"INVOICE {answer.total} {answer.currency}\n"


def weir_bill(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        gateway.cli.main(["bill", *arguments])
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, captured.out, captured.err


def test_the_invoices_are_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(answer=summary())
    monkeypatch.setattr(bill, "_engine", lambda: engine)
    arguments = ("--period", "2026-11", "--metering", "m", "--out", "o", "--price-book", "p.yaml")
    code, out, err = weir_bill(capsys, *arguments)
    assert (code, out) == (0, "INVOICE 12.30 EUR\n")
    assert "run=0123456789abcdef" in err
    assert engine.asked == ("2026-11", Path("m"), Path("o"), Path("p.yaml"))
    arguments = ("--period", "2026-11", "--metering", "m")
    code, out, _ = weir_bill(capsys, *arguments, "-o", "json")
    assert json.loads(out)["total"] == "12.30"
    assert engine.asked == ("2026-11", Path("m"), bill.DEFAULT_OUT, None)
    assert weir_bill(capsys, *arguments, "-o", "name")[1] == "0123456789abcdef\n"


def test_missing_records_are_a_failure_beside_the_invoices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bill, "_engine", lambda: Engine(answer=summary(["records are missing"])))
    code, out, _ = weir_bill(capsys, "--period", "2026-11", "--metering", "m")
    assert (code, out) == (ExitCode.FAILED, "INVOICE 12.30 EUR\n")


def test_a_data_directory_that_is_none_is_said_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bill, "_engine", lambda: Engine(answer=summary()))
    for data, words in ((tmp_path / "none", "is no data directory"), (tmp_path, "ever run")):
        code, out, err = weir_bill(capsys, "--period", "2026-11", "--data", str(data))
        assert (code, out) == (ExitCode.FAILED, "")
        assert words in err


def test_a_data_directory_is_exported_before_it_is_billed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its server while that runs, and by the command once it was killed."""
    engine = Engine(answer=summary())
    monkeypatch.setattr(bill, "_engine", lambda: engine)
    arguments = ("--period", "2026-11", "--data", str(tmp_path))
    rows = []
    with serving(tmp_path, "node.metering.flush_interval_s=3600") as node:
        for stop in (lambda: None, node.kill):
            if node.process.poll() is None:
                with node.amqp() as connection:
                    channel = connection.channel()
                    channel.queue_declare("billed", durable=True)
                    channel.confirm_delivery()
                    channel.basic_publish("", "billed", b"x")
            stop()
            assert weir_bill(capsys, *arguments)[0] == 0
            assert engine.asked[1] == tmp_path / "metering"
            rows.append(published(tmp_path / "metering"))
    assert rows == [1, 2]
    with serving(tmp_path) as node:
        assert node.api("GET", "/metering").json["state"] is not None


def published(archive: Path) -> int:
    """What the archive says was published, of the one queue there is."""
    entries = parse_manifest((archive / MANIFEST_NAME).read_bytes())
    tables = [pq.read_table(archive / entry.name) for entry in entries]
    found = [
        row["cum_messages"]
        for table in tables
        for row in table.to_pylist()
        if (row["kind"], row["action"], row["topic"]) == ("store", "publish", "billed")
    ]
    return max(found)


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_archive(tmp_path, [record(1)])
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    arguments = ("--period", "2026-11", "--metering", str(tmp_path), "--out", str(tmp_path / "o"))
    code, out, err = weir_bill(capsys, *arguments)
    assert (code, out) == (ExitCode.FAILED, "")
    assert "weir-mq[spark]" in err


def test_a_server_that_cannot_export_is_told_what_to_install_and_not_to_try_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bill, "_engine", lambda: Engine(answer=summary()))
    monkeypatch.setattr(node_metering, "can_export", lambda: False)
    code, out, err = weir_bill(capsys, "--period", "2026-11", "--data", str(tmp_path))
    assert (code, out) == (ExitCode.FAILED, "")
    assert "weir-mq[spark]" in err
    code, out, err = weir_bill(capsys, "--period", "2026", "--data", str(tmp_path))
    assert (code, out) == (ExitCode.USAGE, ""), "the month is read first"


def test_a_price_book_that_is_none_is_named_before_anything_is_exported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "text.yaml").write_text("[")
    for name, reason in (
        ("none.yaml", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("text.yaml", "is not YAML"),
    ):
        book = tmp_path / name
        arguments = ("--period", "2026-11", "--data", str(tmp_path), "--price-book", str(book))
        code, out, err = weir_bill(capsys, *arguments)
        assert (code, out) == (ExitCode.FAILED, "")
        assert f"{book} {reason}" in err
        assert "--price-book" in err.splitlines()[-1]
        assert "Errno" not in err
        assert "exporting" not in err


def test_without_the_jobs_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spark.bill", None)
    code, out, err = weir_bill(capsys, "--period", "2026-11", "--metering", "m")
    assert (code, out) == (ExitCode.FAILED, "")
    assert "weir-mq[spark]" in err
