"""The Spark job against the rules in plain Python. One session for all; about a minute."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metering.schema import SCHEMA_VERSION
from spark import bill
from spark.java import java_home
from spark.pricebook import PriceBook, default_price_book, parse_price_book
from tests.spark.golden import CASES, DAY_US, PRICES, golden_book, golden_records
from tests.spark.plain_rating import invoices, rate, unpriced
from tests.spark.plain_usage import Usage, aggregate
from tests.spark.reconcile import check_returns, check_run, load_usage
from tests.spark.samples import HOUR_US, NOVEMBER, random_records, record, write_archive
from tests.spark.test_reconcile import proof_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.invoice import Invoice

pytestmark = pytest.mark.spark

DIMENSIONS = (
    "tenant string, account string, kind string, protocol string, action string, api_action string,"
    " topic string, queue_class string, network string, region string, outcome string"
)
SUMS = ", ".join(f"{name} decimal(28,0)" for name in Usage._fields[12:])


def usage_frame(spark: SparkSession, rows: list[Usage]) -> DataFrame:
    """Hourly usage as the job's first half makes it."""
    from pyspark.sql import functions as F  # noqa: N812 - as every Spark text has it

    values = [(*row[:12], *(Decimal(value) for value in row[12:])) for row in rows]
    frame = spark.createDataFrame(values, f"{DIMENSIONS}, hour_us bigint, {SUMS}")
    return frame.withColumn("hour", F.timestamp_micros("hour_us")).drop("hour_us")


def rated(spark: SparkSession, book: PriceBook, rows: list[Usage]) -> list[Invoice]:
    """The invoices that the Spark plans make of some usage."""
    from spark.jobs import rated_lines
    from spark.jobs.run_tables import _invoices

    lines = rated_lines.build(spark, book, usage_frame(spark, rows), NOVEMBER)
    totals = rated_lines.invoice_totals(book, lines).selectExpr(
        "*",
        f"'{book.currency}' AS currency",
        f"{book.minor_digits} AS minor_digits",
        f"'{book.sha256}' AS price_book_sha256",
    )
    return list(_invoices(book, NOVEMBER, "r1", lines, totals))


def oracle(book: PriceBook, rows: list[Usage], run_id: str = "r1") -> list[Invoice]:
    return invoices(book, rate(book, rows, NOVEMBER), NOVEMBER, run_id)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_run_over_random_records_equals_the_rules_in_plain_python(
    spark: SparkSession, tmp_path: Path, repeats: bool
) -> None:
    records = random_records(5, 1500, repeats=repeats)
    write_archive(tmp_path / "metering", records)
    # A leftover that no manifest line names is not read.
    (tmp_path / "metering/p0-999999-1000000.parquet").write_bytes(b"PAR1 half a file")
    expected = aggregate(records, NOVEMBER)
    summary = bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    assert sorted(load_usage(summary)) == sorted(expected.usage)
    assert (summary.records, summary.duplicates, summary.quarantined) == (
        expected.records,
        expected.duplicates,
        expected.conflict_records,
    )
    assert f"{expected.falls} cumulative records fell below an earlier one" in summary.problems
    book = default_price_book()
    assert bill.load_invoices(summary) == oracle(book, list(expected.usage), summary.run_id)
    assert check_run(summary, book) == []
    assert summary.unpriced == tuple(map(str, unpriced(book, expected.usage)))


def test_the_golden_invoices_come_out_whatever_files_and_repeats(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = golden_records()
    repeats = [replace(item, emitted_at_us=item.emitted_at_us + 1) for item in records[::2]]
    shuffled = [*records, *repeats, *records[::5]]
    Random(7).shuffle(shuffled)
    write_archive(tmp_path / "metering", shuffled)
    book = tmp_path / "book.yaml"
    book.write_text(PRICES, encoding="utf-8")
    summary = bill.run("2026-11", tmp_path / "metering", tmp_path / "out", book, session=spark)
    assert (summary.problems, summary.quarantined) == ((), 0)
    found = {invoice.tenant: invoice for invoice in bill.load_invoices(summary)}
    for case in CASES:
        invoice = found.pop(case.tenant, None)
        assert (None if invoice is None else str(invoice.total)) == case.total
        if invoice is not None:
            lines = [(line.sku, line.quantity, str(line.amount)) for line in invoice.lines]
            assert lines == case.lines
    assert found == {}
    assert summary.total == sum(Decimal(case.total or 0) for case in CASES)
    pages = bill.render_invoices(summary)
    assert all(f"tenant {case.tenant} " in pages for case in CASES if case.total)


def random_book(random: Random, currency: str) -> PriceBook:
    """Two price versions of three tiers each, with a change in mid-month."""
    skus = []
    for number, measure in enumerate(["messages", "units_4k", "bytes_out", "requests"]):
        edges = sorted(random.sample(range(1, 10**6), 2))
        free = random.randrange(10**5)
        actions = "publish, receive, admin" if measure == "requests" else "publish, deliver"
        weights = "queue_class: {fifo: '7'}"
        if measure == "requests":
            weights = "api_action: {SendMessage: '7'}"
        prices = ""
        for version, dates in enumerate(["2026-01-01, to: 2026-11-16", "2026-11-16, to: null"]):
            tiers = ", ".join(
                f"{{up_to: {edge}, price: '{random.randrange(10**9)}.{random.randrange(10**6)}'}}"
                for edge in [*edges, "null"]
            )
            prices += (
                f"\n      - {{id: s{number}.{version}, from: {dates}, model: graduated,"
                f" per: 1000000, free: {free}, tiers: [{tiers}]}}"
            )
        skus.append(
            f"\n  - id: s{number}\n    title: T\n    meter: {{measure: {measure}, action:"
            f" [{actions}]}}\n    multiplier: {{{weights}, protocol: {{sqs: '3'}}}}\n"
            f"    prices:{prices}"
        )
    return parse_price_book(f"schema: 1\nname: x\ncurrency: {currency}\nskus:{''.join(skus)}")


@pytest.mark.parametrize("currency", ["JPY", "USD", "KWD"])
def test_rating_with_any_price_book_equals_the_rules_in_plain_python(
    spark: SparkSession, currency: str
) -> None:
    random = Random(currency)
    book = random_book(random, currency)
    usage = list(aggregate(random_records(random.randrange(99), 300), NOVEMBER).usage)
    assert rated(spark, book, usage) == oracle(book, usage)


def test_the_largest_amounts_are_exact(spark: SparkSession) -> None:
    book = parse_price_book(
        PRICES.replace('per: 1, price: "0.05"', 'per: 1, price: "9999999.999999999999"')
    )
    (row,) = aggregate(
        [record(0, protocol="mqtt", action="publish", messages=10**15 - 1)], NOVEMBER
    ).usage
    (invoice,) = rated(spark, book, [row])
    digits = str(9999999999999999999 * (10**15 - 1))
    assert f"{invoice.exact:f}" == f"{digits[:-12]}.{digits[-12:]}"
    assert [invoice] == oracle(book, [row])


def test_money_is_decimal_at_every_stage_and_never_a_float(spark: SparkSession) -> None:
    from spark.jobs import rated_lines

    book = golden_book()
    usage = usage_frame(spark, list(aggregate(golden_records(), NOVEMBER).usage))
    pools = rated_lines.free_quota(rated_lines.pool(spark, book, usage, NOVEMBER))
    lines = rated_lines.price_lines(spark, book, pools)
    totals = rated_lines.invoice_totals(book, lines)
    shown = rated_lines.shown_amounts(book, lines)
    types = {
        (name, kind)
        for frame in (usage, pools, lines, totals, shown)
        for name, kind in frame.dtypes
    }
    assert {kind for _, kind in types}.isdisjoint({"float", "double"})
    assert {kind for name, kind in types if name in {"exact", "total", "amount"}} == {
        "decimal(38,12)"
    }
    assert {kind for name, kind in types if name == "unit_price"} == {"decimal(19,12)"}
    assert {
        kind for name, kind in types if name in {"quantity", "units", "free_units", "billed"}
    } == {"decimal(18,0)"}


def test_what_cannot_be_rated_fails_the_run_by_name(spark: SparkSession) -> None:
    book = golden_book()
    (row,) = aggregate(
        [record(0, protocol="mqtt", action="publish", queue_class="qos2", messages=10**17)],
        NOVEMBER,
    ).usage
    with pytest.raises(Exception, match="more than 999999999999999999 units used by acme"):
        rated(spark, book, [row._replace(messages=2 * 10**17)])
    ended = parse_price_book(PRICES.replace("2027-01-01", "2026-11-17"))
    late = row._replace(
        protocol="sqs", action="receive", kind="api", units_64k=1,
        hour_us=NOVEMBER.start_us + 20 * DAY_US,
    )  # fmt: skip
    with pytest.raises(Exception, match=r"no price for SKU number 0 at 2026-11-21 .* by acme"):
        rated(spark, ended, [late])


def test_the_same_inputs_find_the_same_run_and_more_records_make_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark.jobs import bill as job

    metering, out = tmp_path / "metering", tmp_path / "out"
    records = [record(0, protocol="amqp", action="publish", messages=3_000_000, emitted_at_us=1)]
    write_archive(metering, records)
    first = bill.run("2026-11", metering, out, session=spark)
    assert str(first.total) == "0.50"
    before = sorted(path for path in out.rglob("*") if path.name != "CURRENT")
    arguments = ["--period", "2026-11", "--metering", str(metering), "--out", str(out)]
    assert job.main(arguments) == 0
    assert sorted(path for path in out.rglob("*") if path.name != "CURRENT") == before

    later = record(1, NOVEMBER.start_us + HOUR_US, protocol="amqp", action="publish",
                   messages=1_000_000)  # fmt: skip
    write_archive(metering, [*records, later])
    second = bill.run("2026-11", metering, out, session=spark)
    assert str(second.total) == "0.75"
    assert second.run_id != first.run_id
    assert bill.load_summary(out, "2026-11") == second
    assert bill.load_invoices(first)[0].total == first.total
    moved = tmp_path / "moved"
    shutil.move(out, moved)
    assert bill.load_invoices(bill.load_summary(moved, "2026-11")) != []


def test_a_run_that_is_cut_short_is_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    write_archive(tmp_path / "metering", [record(0, protocol="sqs", messages=5)])
    with monkeypatch.context() as patches:
        patches.setattr("spark.jobs.run_tables._count_records", lambda _: 1 / 0)
        with pytest.raises(bill.JobFailedError, match="failed: division by zero"):
            bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    with pytest.raises(FileNotFoundError):
        bill.load_summary(tmp_path / "out", "2026-11")
    home = tmp_path / "out/period=2026-11"
    assert not list(home.glob("run=*"))
    (home / "run=killed.partial/usage").mkdir(parents=True)
    summary = bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    assert summary.invoices == 1
    assert [path.name for path in home.glob("run=*")] == [f"run={summary.run_id}"]


def test_one_run_of_a_period_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    write_archive(tmp_path / "metering", [record(0, protocol="sqs", messages=5)])
    with (
        bill._locked(tmp_path / "out/period=2026-11"),
        pytest.raises(bill.BillingBusyError, match="somebody else bills into"),
    ):
        bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    assert bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark).invoices


def test_spark_submit_says_in_a_line_what_went_wrong_and_by_its_exit_code_that_it_did(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark.jobs import bill as job

    def main(*more: str) -> tuple[int, str, list[str]]:
        code = job.main(["--period", "2026-11", "--out", str(tmp_path / "out"), *more])
        told = capsys.readouterr()
        return code, told.out, told.err.splitlines()

    code, out, errors = main("--metering", str(tmp_path / "none"))
    assert (code, out, len(errors)) == (1, "", 1)
    assert "has the exporter run" in errors[0]

    gappy = tmp_path / "gappy"
    write_archive(gappy, [record(0, protocol="sqs", action="receive", api_action="R", requests=1),
                          record(2, protocol="sqs", messages=5)])  # fmt: skip
    code, out, errors = main("--metering", str(gappy))
    assert (code, errors) == (1, [])
    summary = json.loads(out)
    assert summary["problems"] == ["records 1 to 1 of n1 epoch 1 are missing"]
    assert summary["unpriced"] == ["sqs receive (1 requests)"]
    assert main("--metering", str(gappy), "--head", summary["archive_head"])[1] == out
    code, _, errors = main("--metering", str(gappy), "--head", "0" * 64)
    assert (code, len(errors)) == (1, 1)

    book = tmp_path / "book.yaml"
    book.write_text(PRICES.replace("2027-01-01", "2026-11-17"), encoding="utf-8")
    late = record(0, NOVEMBER.start_us + 20 * DAY_US, protocol="sqs", action="receive",
                  api_action="ReceiveMessage", units_64k=1)  # fmt: skip
    write_archive(tmp_path / "late", [late])
    code, out, errors = main("--metering", str(tmp_path / "late"), "--price-book", str(book))
    assert (code, out, len(errors)) == (1, "", 1)
    assert "no price for SKU number 0 at 2026-11-21" in errors[0]


def test_spark_submit_as_the_page_says_ends_with_a_line_and_an_exit_code(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    package = tmp_path / "weir-billing.zip"
    with zipfile.ZipFile(package, "w") as zipped:
        for source in (*root.glob("spark/**/*"), *root.glob("metering/schema/*.py")):
            if source.is_file() and "__pycache__" not in source.parts:
                zipped.write(source, source.relative_to(root))
        zipped.write(root / "metering/__init__.py", "metering/__init__.py")
    late = record(0, NOVEMBER.start_us + 20 * DAY_US, protocol="sqs", action="receive",
                  api_action="ReceiveMessage", units_64k=1)  # fmt: skip
    write_archive(tmp_path / "late", [late])
    book = tmp_path / "book.yaml"
    book.write_text(PRICES.replace("2027-01-01", "2026-11-17"), encoding="utf-8")
    with java_home():
        made = subprocess.run(
            [
                str(Path(sys.executable).with_name("spark-submit")),
                *("--master", "local[1]", "--py-files", str(package), "spark/jobs/bill.py"),
                *("--period", "2026-11", "--metering", str(tmp_path / "late")),
                *("--out", str(tmp_path / "out"), "--price-book", str(book)),
            ],
            capture_output=True,
            text=True,
            cwd=root,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            timeout=100,
            check=False,
        )
    # spark-submit puts what the job says on stderr into its own stdout.
    told = made.stdout + made.stderr
    assert made.returncode == 1
    (error,) = [line for line in told.splitlines() if "no price for SKU number 0" in line]
    assert error.startswith("error: the billing job failed: ")
    assert "Traceback" not in told
    assert "\tat " not in told


def test_a_period_without_records_is_a_run_without_invoices(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_archive(tmp_path / "metering", [record(0, NOVEMBER.end_us, messages=5)])
    summary = bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    assert (summary.records, summary.invoices, summary.total) == (0, 0, Decimal("0.00"))
    assert summary.problems == ()
    shown = bill.render_invoices(replace(summary, ended=True))
    assert shown == "no usage in 2026-11\n"


def test_a_month_that_has_not_ended_says_so_and_is_another_run_once_it_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(tmp_path / "metering", [record(0, protocol="sqs", messages=5)])
    runs = []
    for ended in (False, True):
        monkeypatch.setattr(bill, "_has_ended", lambda _, ended=ended: ended)
        runs.append(bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark))
    first, second = runs
    assert first.run_id != second.run_id
    assert (first.ended, second.ended) == (False, True)
    assert "2026-11 has not ended" in bill.render_invoices(first)
    assert "has not ended" not in bill.render_invoices(second)
    assert bill.load_summary(tmp_path / "out", "2026-11") == second


def test_records_of_a_later_schema_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    from spark.jobs.usage_hourly import read_archive

    (entry,) = write_archive(tmp_path, [record(0, messages=5)])
    table = pq.read_table(tmp_path / entry.name)
    position = table.schema.get_field_index("schema_version")
    later = pa.array([SCHEMA_VERSION + 1], pa.int32())
    pq.write_table(table.set_column(position, "schema_version", later), tmp_path / "later.parquet")
    assert read_archive(spark, [str(tmp_path / entry.name)]).count() == 1
    with pytest.raises(Exception, match="of another version than 1"):
        read_archive(spark, [str(tmp_path / "later.parquet")]).select("tenant").collect()


def test_a_topic_of_which_more_was_returned_than_delivered_is_a_problem(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = random_records(3, 400, repeats=False)
    write_archive(tmp_path / "metering", records)
    summary = bill.run("2026-11", tmp_path / "metering", tmp_path / "out", session=spark)
    count = len(check_returns(records, NOVEMBER))
    assert count
    assert f"of {count} topics more messages were returned than delivered" in summary.problems


def test_the_proof_of_the_counts_is_part_of_a_run(spark: SparkSession, tmp_path: Path) -> None:
    for name, end, problems in (("good", 12, 0), ("bad", 13, 1)):
        rows = proof_rows(("amqp", 5, 7, 9), ("internal", 5, 2, 9), ("amqp", 8, 10, end))
        write_archive(tmp_path / name, rows)
        summary = bill.run("2026-11", tmp_path / name, tmp_path / "out", session=spark)
        assert len(summary.problems) == problems
        (proof,) = pq.read_table(Path(summary.directory) / "routed").to_pylist()
        assert (proof["routed"], proof["internal"], proof["end_offset"]) == (12, 2, end)
