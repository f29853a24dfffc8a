"""Billing one period: the entry that `weir bill` and other programs call.

    out/period=2026-11/run=<run_id>/    the tables of one run, see jobs/bill.py, and summary.json
    out/period=2026-11/CURRENT          the run_id of the latest run

A run is written under another name and renamed when it is whole: no reader sees a part of one.
Its run_id is the hash of all that decides its result (period, archive files, price book, code):
running again with the same inputs finds the run and changes nothing.

Importing this module needs neither pyspark nor Java; `run` does.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import nullcontext
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

    from spark.jobs.bill import Counts

# Everything `run` raises for a reason that its caller can mend.
BILLING_ERRORS = (ArchiveError, PeriodError, PriceBookError, SparkUnavailableError)

_SUMMARY = "summary.json"
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

    def to_json(self) -> str:
        fields = asdict(self) | {"total": f"{self.total:f}"}
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def read(cls, directory: Path) -> Summary:
        """The summary in a run's directory, wherever that has been moved to."""
        text = (directory / _SUMMARY).read_text(encoding="utf-8")
        fields: dict[str, Any] = json.loads(text) | {"directory": str(directory)}
        fields["total"] = Decimal(fields["total"])
        fields["problems"] = tuple(fields["problems"])
        return cls(**fields)


def run(
    period: str,
    metering_dir: Path,
    out_dir: Path,
    price_book: Path | None = None,
    *,
    session: SparkSession | None = None,
) -> Summary:
    """Bill a month, such as "2026-11", from the metering archive; Weir's own price book if None.

    Opens and stops a local Spark session unless it is given one. Raises one of BILLING_ERRORS for
    what the caller can mend; any other exception is a defect of the archive's data or of the job,
    and no part of the run is published.
    """
    month = Period.parse(period)
    book = default_price_book() if price_book is None else load_price_book(price_book)
    archive = open_archive(metering_dir, month)
    code = code_sha256()
    run_id = _run_id(month, archive, book, code)
    directory = out_dir / f"period={month}" / f"run={run_id}"
    if not (directory / _SUMMARY).exists():
        if session is None:
            check_available()
        from spark.jobs.bill import execute

        partial = directory.with_name(f"{directory.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        quick = archive.rows <= QUICK_ROWS_MAX
        with local_session(quick=quick) if session is None else nullcontext(session) as spark:
            counts = execute(spark, archive, book, month, run_id, partial)
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
        )
        (partial / _SUMMARY).write_text(summary.to_json(), encoding="utf-8")
        partial.rename(directory)
    _point_to(directory.parent, run_id)
    return load_summary(out_dir, period)


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
    pages += [f"problem: {problem}\n" for problem in summary.problems]
    return "\n".join(pages) or f"no usage in {summary.period}\n"


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


def _run_id(period: Period, archive: Archive, book: PriceBook, code: str) -> str:
    text = "\n".join((str(period), archive.sha256, book.sha256, code))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _problems(archive: Archive, counts: Counts) -> tuple[str, ...]:
    problems = [
        f"records {gap.first_seq} to {gap.last_seq} of {gap.node} epoch {gap.epoch} are missing"
        for gap in archive.gaps
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
    return tuple(problems)


def _point_to(home: Path, run_id: str) -> None:
    fresh = home / f"{_CURRENT}.new"
    fresh.write_text(run_id + "\n", encoding="utf-8")
    fresh.replace(home / _CURRENT)
