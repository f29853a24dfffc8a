"""Billing one period: the entry that `weir bill` and other programs call.

    out/period=2026-11/run=<run_id>/    tables of one run (jobs/run_tables.py), and summary.json
    out/period=2026-11/CURRENT          the run_id of the latest run
    out/period=2026-11/.lock            held by who bills the period

A run is written under another name and renamed when it is whole: no reader sees a part of one. What
a run that was killed has left, the next one removes. Its run_id is the hash of all that decides its
result (period and whether it has ended, archive files, price book, code): running again with the
same inputs finds the run and changes nothing.

Importing this module needs neither pyspark nor Java; `run` does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.archive import Archive, ArchiveError, open_archive
from spark.invoice import Invoice, render
from spark.period import Period, PeriodError
from spark.pricebook import (
    PriceBook,
    PriceBookError,
    default_price_book,
    load_price_book,
)
from spark.rating import round_total
from spark.session import (
    QUICK_ROWS_MAX,
    SparkUnavailableError,
    check_available,
    local_session,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from pyspark.sql import SparkSession

    from spark.jobs.run_tables import Counts


class BillingBusyError(RuntimeError):
    """Another run bills the same period into the same place."""


class JobFailedError(RuntimeError):
    """The job died; the message is the first line of what it died of."""


# Everything `run` raises.
BILLING_ERRORS = (
    ArchiveError,
    BillingBusyError,
    JobFailedError,
    PeriodError,
    PriceBookError,
    SparkUnavailableError,
)

# One line of a terminal or two: what Spark says of a plan may go on for pages.
ERROR_CHARACTERS_MAX = 400

_SUMMARY = "summary.json"
_LOCK = ".lock"
_CURRENT = "CURRENT"


@dataclass(frozen=True, slots=True)
class Summary:
    """One run: where it is, what it read, what it billed, and what someone should look at.

    `problems` is empty if every record of the period is known to be there and to agree; with
    problems the invoices are still right for the records that are there.
    """

    run_id: str
    period: str
    directory: str
    currency: str
    minor_digits: int
    total: Decimal
    invoices: int
    files: int
    records: int
    duplicates: int
    quarantined: int
    usage_rows: int
    price_book: str
    price_book_sha256: str
    archive_sha256: str
    code_sha256: str
    problems: tuple[str, ...]
    ended: bool = True
    """Whether the period had ended: if not, what is served until then is still to come."""
    unpriced: tuple[str, ...] = ()
    """Usage that no rule of the price book is for."""
    archive_head: str = ""
    """Of the archive's manifest (`metering.schema.manifest`)."""

    def to_json(self) -> str:
        fields = asdict(self) | {"total": f"{self.total:f}"}
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, directory: Path) -> Summary:
        """The summary in a run's directory, wherever that has been moved to."""
        text = (directory / _SUMMARY).read_text(encoding="utf-8")
        fields: dict[str, Any] = json.loads(text) | {"directory": str(directory)}
        fields["total"] = Decimal(fields["total"])
        for name in ("problems", "unpriced"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)


def run(
    period: str,
    metering_dir: Path,
    out_dir: Path,
    price_book: Path | None = None,
    *,
    session: SparkSession | None = None,
    head: str = "",
) -> Summary:
    """Bill a month, such as "2026-11", from the metering archive; Weir's own price book if None.

    Opens and stops a local Spark session unless it is given one. `head`: what the archive's
    manifest must end with, if that is known. Raises one of BILLING_ERRORS, and no part of the run
    is published.
    """
    month = Period.parse(period)
    book = default_price_book() if price_book is None else load_price_book(price_book)
    archive = open_archive(metering_dir, month, head)
    if session is None:
        check_available()
    home = out_dir / f"period={month}"
    with _locked(home):
        summary = _run(home, month, archive, book, session)
        _point_to(home, summary.run_id)
    return summary


def _run(
    home: Path, month: Period, archive: Archive, book: PriceBook, session: SparkSession | None
) -> Summary:
    """The run of these inputs, made unless it is there."""
    code, ended = code_sha256(), _has_ended(month)
    run_id = _run_id(month, archive, book, code, ended=ended)
    directory = home / f"run={run_id}"
    for leftover in home.glob("run=*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    if not (directory / _SUMMARY).exists():
        partial = directory.with_name(f"{directory.name}.partial")
        partial.mkdir()
        try:
            counts = _execute(session, archive, book, month, run_id, partial)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        summary = Summary(
            run_id=run_id,
            period=str(month),
            directory=str(directory),
            currency=book.currency,
            minor_digits=book.minor_digits,
            total=round_total(counts.total, book.minor_digits),
            invoices=counts.invoices,
            files=len(archive.entries),
            records=counts.records,
            duplicates=counts.duplicates,
            quarantined=counts.quarantined,
            usage_rows=counts.usage_rows,
            price_book=book.name,
            price_book_sha256=book.sha256,
            archive_sha256=archive.sha256,
            code_sha256=code,
            problems=_problems(archive, counts),
            ended=ended,
            unpriced=counts.unpriced,
            archive_head=archive.head,
        )
        (partial / _SUMMARY).write_text(summary.to_json(), encoding="utf-8")
        partial.rename(directory)
    return Summary.read(directory)


def _execute(
    session: SparkSession | None,
    archive: Archive,
    book: PriceBook,
    month: Period,
    run_id: str,
    partial: Path,
) -> Counts:
    """Have Spark do it. Raises JobFailedError for whatever the job dies of."""
    from spark.jobs.run_tables import execute

    quick = archive.rows <= QUICK_ROWS_MAX
    try:
        with local_session(quick=quick) if session is None else nullcontext(session) as spark:
            return execute(spark, archive, book, month, run_id, partial)
    except SparkUnavailableError:
        raise
    except Exception as error:
        raise JobFailedError(f"the billing job failed: {one_line(error)}") from error


def _has_ended(month: Period) -> bool:
    now_us = time.time_ns() // 1_000  # noqa: TID251 - by the calendar of whoever bills
    return now_us >= month.end_us


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold a period's directory: one run of it at a time. Raises BillingBusyError."""
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BillingBusyError(f"somebody else bills into {home}: wait for it") from error
        yield
    finally:
        os.close(lock)


def one_line(error: BaseException) -> str:
    """What an exception says first, and of one from the JVM what has caused it, without a stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")[:ERROR_CHARACTERS_MAX]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    text = told[0].removeprefix(": ") if told else type(error).__name__
    return text[:ERROR_CHARACTERS_MAX]


def load_summary(out_dir: Path, period: str) -> Summary:
    """The summary of a period's current run. Raises FileNotFoundError if there is none."""
    home = out_dir / f"period={Period.parse(period)}"
    run_id = (home / _CURRENT).read_text(encoding="utf-8").strip()
    return Summary.read(home / f"run={run_id}")


def load_invoices(summary: Summary) -> list[Invoice]:
    """The invoices of a run, in order of tenant."""
    files = Path(summary.directory).glob("json/*.json")
    invoices = [Invoice.from_json(path.read_text(encoding="utf-8")) for path in files]
    return sorted(invoices, key=lambda invoice: invoice.tenant)


def render_invoices(summary: Summary) -> str:
    """All invoices of a run as text, a blank line between them; the problems at the end."""
    pages = [render(invoice) for invoice in load_invoices(summary)]
    if not pages:
        pages = [f"no usage in {summary.period}\n"]
    if summary.unpriced:
        pages.append(f"without a price: {', '.join(summary.unpriced)}\n")
    if not summary.ended:
        pages.append(
            f"{summary.period} has not ended: what is served until then is still to come\n"
        )
    pages += [f"problem: {problem}\n" for problem in summary.problems]
    return "\n".join(pages)


def code_sha256() -> str:
    """The hash of the sources that decide a bill: this package and metering.schema."""
    digest = hashlib.sha256()
    for package in ("spark", "metering.schema"):
        for name, source in sorted(_sources(files(package), package)):
            digest.update(name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()


def _sources(directory: Traversable, place: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of all Python files below a package, which may lie in a zip."""
    for item in directory.iterdir():
        if item.is_dir():
            yield from _sources(item, f"{place}/{item.name}")
        elif item.name.endswith(".py"):
            yield f"{place}/{item.name}", item.read_bytes()


def _run_id(period: Period, archive: Archive, book: PriceBook, code: str, *, ended: bool) -> str:
    state = "ended" if ended else "open"
    text = "\n".join((str(period), state, archive.sha256, book.sha256, code))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _problems(archive: Archive, counts: Counts) -> tuple[str, ...]:
    problems = [
        f"records {gap.first_seq} to {gap.last_seq} of {gap.node} epoch {gap.epoch} are missing"
        for gap in archive.gaps
    ]
    problems += [
        f"{entry.missing} messages of {entry.name} were given up by the log: their records are"
        " missing"
        for entry in archive.entries
        if entry.missing
    ]
    if counts.quarantined:
        problems.append(f"{counts.quarantined} records share an identity but not their content")
    if counts.counters_fallen:
        problems.append(f"{counts.counters_fallen} cumulative records fell below an earlier one")
    if counts.routed_apart:
        problems.append(
            f"{counts.routed_apart} topics were routed another number of messages than their end"
            " offsets grew by: see the run's table `routed`"
        )
    if counts.returned_beyond:
        problems.append(
            f"of {counts.returned_beyond} topics more messages were returned than delivered"
        )
    return tuple(problems)


def _point_to(home: Path, run_id: str) -> None:
    fresh = home / f"{_CURRENT}.new"
    fresh.write_text(run_id + "\n", encoding="utf-8")
    fresh.replace(home / _CURRENT)
