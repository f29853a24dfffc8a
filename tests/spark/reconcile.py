"""Reconciliation: billed = served, with a tolerance of zero (docs/design/billing.md).

Each check takes plain values and gives the breaks it found; an empty list is the proof. A break
is never a matter of degree: one message too many or too few is one.

    routed     for each topic: routed by everyone = growth of the end offsets, and what is billed
               of it = that growth less the server's own moves (protocol `internal`)
    proof      the same from the archive alone, whose rows carry the end offsets with the counts
    returns    for each topic: no more was returned than was delivered
    archive    for each queue of __metering: the archive reaches from the first to the last offset
    rating     the lines of every invoice are what the rules in plain Python make of the usage
    invoices   lines add up to their invoice, shown and exact

The end offsets are those at the log index of the last cumulative records, which a caller gets by
stopping traffic and closing a window, or by reading both from one snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from metering.schema import INTERNAL, Action, Kind
from spark.invoice import EXACT, Invoice
from spark.period import Period
from spark.usage import DIMENSIONS, EGRESS, PROOF, SUMS
from tests.spark.plain_rating import invoices as make_invoices
from tests.spark.plain_rating import rate
from tests.spark.plain_usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from metering.schema import ManifestEntry, Record
    from spark.bill import Summary
    from spark.pricebook import PriceBook


@dataclass(frozen=True, slots=True)
class OffsetGrowth:
    """The end offsets of a topic, all its queues added up, at the two ends of a span of time."""

    tenant: str
    topic: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that should be equal and is not."""

    check: str
    subject: str
    expected: int | Decimal
    found: int | Decimal

    def __str__(self) -> str:
        return f"{self.check}: {self.subject}: expected {self.expected}, found {self.found}"


def check_routed(usage: Iterable[Usage], growth: Iterable[OffsetGrowth]) -> list[Break]:
    """Routed references against the growth of the end offsets, for each tenant and topic."""
    external: dict[tuple[str, str], int] = defaultdict(int)
    internal: dict[tuple[str, str], int] = defaultdict(int)
    for row in usage:
        if row.kind == Kind.STORE and row.action == Action.ROUTE:
            side = internal if row.protocol == INTERNAL else external
            side[row.tenant, row.topic] += row.messages
    grown = {(item.tenant, item.topic): item.end - item.first for item in growth}
    return [
        Break("routed", f"tenant {tenant} topic {topic}", expected, found)
        for tenant, topic in sorted(grown.keys() | external.keys() | internal.keys())
        if (expected := grown.get((tenant, topic), 0) - internal[tenant, topic])
        != (found := external[tenant, topic])
    ]


def check_proof(records: Iterable[Record], period: Period) -> list[Break]:
    """What all origins have routed to each topic until the period's end against the end offset
    that the rows themselves carry (gauge_max of `route`). Archives without are passed over.
    """
    routed: dict[tuple[object, ...], dict[tuple[str, str], int]] = defaultdict(dict)
    ends: dict[tuple[object, ...], int] = defaultdict(int)
    for record in records:
        if record.kind != Kind.STORE or record.action != Action.ROUTE:
            continue
        if record.window_start_us < period.end_us:
            place = tuple(getattr(record, name) for name in PROOF)
            counters, origin = routed[place], (record.protocol, record.queue_class)
            counters[origin] = max(counters.get(origin, 0), record.cum_messages)
            ends[place] = max(ends[place], record.gauge_max)
    return [
        Break("proof", " ".join(map(str, place)), end, sum(routed[place].values()))
        for place, end in ends.items()
        if end and end != sum(routed[place].values())
    ]


def check_returns(records: Iterable[Record], period: Period) -> list[Break]:
    """What was returned of each topic's leases until the period's end: no more than was leased."""
    counters: dict[tuple[object, ...], dict[tuple[str, str, str], int]] = defaultdict(dict)
    for record in records:
        if record.kind != Kind.STORE or record.action not in EGRESS:
            continue
        if record.window_start_us < period.end_us:
            place = tuple(getattr(record, name) for name in (*PROOF, "protocol"))
            series = (record.action, record.group, record.queue_class)
            known = counters[place]
            known[series] = max(known.get(series, 0), record.cum_messages)
    breaks = []
    for place, known in counters.items():
        sums = {
            action: sum(count for series, count in known.items() if series[0] == action)
            for action in EGRESS
        }
        delivered, returned = sums[Action.DELIVER], sums[Action.RETURN]
        if returned > delivered:
            breaks.append(Break("returns", " ".join(map(str, place)), delivered, returned))
    return breaks


def check_archive(
    entries: Iterable[ManifestEntry], bounds: Mapping[int, tuple[int, int]]
) -> list[Break]:
    """The archive against the first and the end offset of each queue of `__metering`.

    Gaps between files cannot be: reading the manifest refuses them.
    """
    first: dict[int, int] = {}
    end: dict[int, int] = {}
    for entry in entries:
        first.setdefault(entry.queue, entry.from_offset)
        end[entry.queue] = entry.to_offset
    breaks = []
    for queue, (kept_from, log_end) in sorted(bounds.items()):
        if log_end == kept_from and queue not in first:
            continue
        if first.get(queue, log_end) > kept_from:
            found = first.get(queue, log_end)
            breaks.append(Break("archive", f"queue {queue}, first offset", kept_from, found))
        if end.get(queue, 0) != log_end:
            found = end.get(queue, 0)
            breaks.append(Break("archive", f"queue {queue}, end offset", log_end, found))
    return breaks


def check_invoices(invoices: Iterable[Invoice]) -> list[Break]:
    """Lines against the totals of their invoices."""
    breaks = []
    for invoice in invoices:
        shown = reduce(EXACT.add, (line.amount for line in invoice.lines), Decimal(0))
        exact = reduce(EXACT.add, (line.exact for line in invoice.lines), Decimal(0))
        if shown != invoice.total:
            breaks.append(Break("invoices", f"{invoice.tenant}, total", shown, invoice.total))
        if exact != invoice.exact:
            breaks.append(Break("invoices", f"{invoice.tenant}, exact", exact, invoice.exact))
    return breaks


def check_rating(
    book: PriceBook, usage: Iterable[Usage], invoices: Iterable[Invoice], period: Period
) -> list[Break]:
    """Every line against the rules in plain Python: quantity, exact and shown amount."""
    expected = {
        (invoice.tenant, line.position): line
        for invoice in make_invoices(book, rate(book, usage, period), period, "")
        for line in invoice.lines
    }
    found = {
        (invoice.tenant, line.position): line for invoice in invoices for line in invoice.lines
    }
    breaks = []
    for key in sorted(expected.keys() | found.keys()):
        want, have = expected.get(key), found.get(key)
        subject = f"{key[0]} line {key[1]}"
        for name in ("quantity", "exact", "amount"):
            wanted, had = getattr(want, name, 0), getattr(have, name, 0)
            if wanted != had:
                breaks.append(Break("rating", f"{subject}, {name}", wanted, had))
    return breaks


def check_run(summary: Summary, book: PriceBook) -> list[Break]:
    """The checks that a run's own tables allow, rating and invoices. Needs pyarrow.

    Raises ValueError unless `book` is the one of the run.
    """
    from spark.bill import load_invoices

    if book.sha256 != summary.price_book_sha256:
        raise ValueError(f"run {summary.run_id} was rated with another price book")
    usage = load_usage(summary)
    invoices = load_invoices(summary)
    period = Period.parse(summary.period)
    return [*check_rating(book, usage, invoices, period), *check_invoices(invoices)]


def load_usage(summary: Summary) -> list[Usage]:
    """The hourly usage of a run, read without Spark. Needs pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(Path(summary.directory) / "usage")
    hours = table["hour"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    texts = [table[name].to_pylist() for name in DIMENSIONS]
    sums = [[int(value) for value in table[name].to_pylist()] for name in SUMS]
    return [Usage._make(row) for row in zip(*texts, hours, *sums, strict=True)]
