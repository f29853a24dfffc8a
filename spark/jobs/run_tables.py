"""The tables of one billing run: archive files in, one run's directory out.

    usage/       Parquet: hourly usage (spark.usage)
    quarantine/  Parquet: records that were not billed, with the reason
    lines/       Parquet: rated lines with exact and shown amounts
    invoices/    Parquet: one row a tenant
    routed/      Parquet: the proof of the store's counters (jobs/routed.py)
    json/        one invoice a tenant, canonical JSON, named after the tenant

Each table is made from the one before it as it was written, so that what is on disk is what was
billed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark text uses

from metering.schema import Action, Kind
from spark.invoice import EXACT, Invoice, Line
from spark.jobs import rated_lines, routed, usage_hourly
from spark.session import apply_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from spark.archive import Archive
    from spark.period import Period
    from spark.pricebook import PriceBook

# A file name has 255 bytes; a longer tenant name is replaced by its hash.
_FILE_STEM_MAX = 200


class BillError(RuntimeError):
    """The run's own tables contradict each other: nothing of it is published."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the run read and what it left out. records = billed + duplicates + quarantined."""

    records: int
    duplicates: int
    quarantined: int
    counters_fallen: int
    routed_apart: int
    returned_beyond: int
    usage_rows: int
    invoices: int
    total: Decimal
    unpriced: tuple[str, ...]


def execute(
    session: SparkSession,
    archive: Archive,
    book: PriceBook,
    period: Period,
    run_id: str,
    directory: Path,
) -> Counts:
    """Write all tables of a run into `directory`. Raises BillError, or what Spark raises."""
    apply_settings(session)
    store = _Tables(session, directory, run_id, period)
    stages = usage_hourly.build(session, archive, period)
    usage = store.write("usage", stages.usage)
    read = _count_records(stages)
    counted = _check_usage(usage, read)
    quarantine = usage_hourly.quarantine(stages, with_falls=counted["falls"] > 0)
    store.write("quarantine", quarantine)
    lines = store.write("lines", rated_lines.build(session, book, usage, period))
    totals = rated_lines.invoice_totals(book, lines).withColumns(
        {
            "currency": F.lit(book.currency),
            "minor_digits": F.lit(book.minor_digits),
            "price_book": F.lit(book.name),
            "price_book_sha256": F.lit(book.sha256),
        }
    )
    invoices = store.write("invoices", totals)
    proofs = store.write("routed", routed.build(session, archive, period))
    count, total = _write_json(_invoices(book, period, run_id, lines, invoices), directory / "json")
    return Counts(
        records=read["records"],
        duplicates=read["records"] - read["unique"] - read["quarantined"],
        quarantined=read["quarantined"],
        counters_fallen=counted["falls"],
        routed_apart=routed.apart(proofs),
        returned_beyond=routed.returned_beyond(session, archive, period),
        usage_rows=counted["rows"],
        invoices=count,
        total=total,
        unpriced=tuple(map(str, rated_lines.unpriced(book, usage))),
    )


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one run. Each row is stamped with the run and the period."""

    session: SparkSession
    directory: Path
    run_id: str
    period: Period

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table; what is returned reads it back from its files."""
        path = str(self.directory / name)
        stamps = {"run_id": F.lit(self.run_id), "period": F.lit(str(self.period))}
        stamped = frame.withColumns(stamps)
        stamped.write.parquet(path)
        return self.session.read.schema(stamped.schema).parquet(path)


def _count_records(stages: usage_hourly.Stages) -> dict[str, int]:
    """Records read, identities billed, records in quarantine; messages of kinds that add up."""
    compared, conflict = stages.compared, F.col("conflict")
    adds_up = F.col("kind") != Kind.STORE.value
    returned = F.col("action") == Action.RETURN.value
    messages = F.when(returned, -F.col("messages")).otherwise(F.col("messages"))
    plain = stages.plain.agg(
        F.count(F.lit(1)).alias("records"),
        F.count(F.lit(1)).alias("unique"),
        F.lit(0).cast("bigint").alias("quarantined"),
        F.sum(F.when(adds_up, messages)).alias("messages"),
    )
    both = plain.unionByName(
        compared.agg(
            F.sum("copies").alias("records"),
            F.count(F.when(~conflict, 1)).alias("unique"),
            F.sum(F.when(conflict, F.col("copies"))).alias("quarantined"),
            F.sum(F.when(~conflict & adds_up, messages)).alias("messages"),
        )
    )
    return _only_row(both.agg(*(F.sum(name).alias(name) for name in both.columns)))


def _check_usage(usage: DataFrame, read: dict[str, int]) -> dict[str, int]:
    """Rows and falls of the usage; raises BillError unless it adds up to the records' messages."""
    adds_up = F.when(F.col("kind") != Kind.STORE.value, F.col("messages"))
    counted = _only_row(
        usage.agg(
            F.count(F.lit(1)).alias("rows"),
            F.sum("falls").alias("falls"),
            F.sum(adds_up).alias("messages"),
        )
    )
    if counted["messages"] != read["messages"]:
        raise BillError(
            f"usage has {counted['messages']} messages, its records have {read['messages']}"
        )
    return counted


def _only_row(frame: DataFrame) -> dict[str, int]:
    """The one row of an aggregate without keys; a sum of nothing is 0."""
    (row,) = frame.collect()
    return {name: int(value or 0) for name, value in row.asDict().items()}


def _invoices(
    book: PriceBook, period: Period, run_id: str, lines: DataFrame, invoices: DataFrame
) -> Iterator[Invoice]:
    """The invoices in order of tenant, read back from their tables."""
    line_rows = lines.orderBy("tenant", "position").toLocalIterator()
    waiting = next(line_rows, None)
    for row in invoices.orderBy("tenant").toLocalIterator():
        own: list[Line] = []
        while waiting is not None and waiting["tenant"] == row["tenant"]:
            own.append(_line(waiting))
            waiting = next(line_rows, None)
        yield Invoice(
            tenant=row["tenant"],
            period=str(period),
            currency=row["currency"],
            minor_digits=row["minor_digits"],
            exact=row["exact"],
            total=row["total"],
            lines=tuple(own),
            run_id=run_id,
            price_book=book.name,
            price_book_sha256=row["price_book_sha256"],
        )
    if waiting is not None:
        raise BillError(f"the lines of {waiting['tenant']} belong to no invoice")


def _line(row: Row) -> Line:
    return Line(
        tenant=row["tenant"],
        position=row["position"],
        sku=row["sku"],
        price_id=row["price_id"],
        tier=row["tier"],
        title=row["title"],
        quantity=int(row["quantity"]),
        per=row["per"],
        unit_price=row["unit_price"],
        exact=row["exact"],
        amount=row["amount"],
    )


def _write_json(invoices: Iterator[Invoice], directory: Path) -> tuple[int, Decimal]:
    """(number of invoices, their total). Raises BillError for one that does not add up."""
    directory.mkdir()
    count, total = 0, Decimal(0)
    for invoice in invoices:
        shown = reduce(EXACT.add, (line.amount for line in invoice.lines), Decimal(0))
        exact = reduce(EXACT.add, (line.exact for line in invoice.lines), Decimal(0))
        if shown != invoice.total or exact != invoice.exact:
            raise BillError(f"the invoice of {invoice.tenant} does not add up to its lines")
        path = directory / f"{_file_stem(invoice.tenant)}.json"
        path.write_text(invoice.to_json(), encoding="utf-8")
        count, total = count + 1, EXACT.add(total, invoice.total)
    return count, total


def _file_stem(tenant: str) -> str:
    stem = quote(tenant, safe="")
    if len(stem) <= _FILE_STEM_MAX:
        return stem
    return hashlib.sha256(tenant.encode()).hexdigest()
