"""From hourly usage to invoice lines: the rules, in exact decimals.

The order of operations is fixed. jobs/rated_lines.py keeps it; the tests have it in plain Python as
well (tests/spark/plain_rating.py) and hold the two equal:

1. measure      the usage a SKU's meter matches, in its measure; never the server's own moves or
                errors. One usage row may match several SKUs.
2. multiplier   times the whole factors of its class and other dimensions (1 where none is given)
3. version      by hour: each hour belongs to the price version in force at its start. A change
                in mid-month splits the month's quantity into one pool for each version. A pool
                of less than nothing (returned in it, delivered in the one before) is nothing.
4. free         the month's free quota is used up by the pools in order of time
5. tiers        each pool's rest runs through the tiers of its version from the first one on; the
                flat model is one open tier
6. sum          quantity x unit price per line, exact, added up per tenant, exact
7. rounding     once: the sum, half-even, to the currency's smallest coin. The shown amounts of
                the lines are rounded down and the coins that are left go to the lines with the
                largest remainders, so that the lines add up to the total.

No step divides, and every step before the last traps inexact arithmetic: a result that needed
rounding would be an error and not a wrong invoice.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import NamedTuple

from metering.schema import Outcome
from spark.invoice import FREE_TIER
from spark.period import Period, day_start_us
from spark.pricebook import PriceBook, Sku

# Rounding happens in this context and in no other.
ROUNDING = Context(prec=80)


@dataclass(frozen=True, slots=True)
class Version:
    """A price version's share of a period: hours from start_us up to end_us."""

    number: int
    start_us: int
    end_us: int


def versions(sku: Sku, period: Period) -> list[Version]:
    """The price versions of a SKU that are in force in a period, in order of time."""
    found = []
    for number, price in enumerate(sku.prices):
        start_us = max(period.start_us, day_start_us(price.first))
        end_us = period.end_us
        if price.end is not None:
            end_us = min(end_us, day_start_us(price.end))
        if start_us < end_us:
            found.append(Version(number, start_us, end_us))
    return found


class Unpriced(NamedTuple):
    """Usage that no rule of a price book is for."""

    protocol: str
    action: str
    outcome: str
    messages: int
    requests: int

    def __str__(self) -> str:
        what = self.action if self.outcome == Outcome.OK else f"{self.action}/{self.outcome}"
        count = f"{self.messages:,} messages" if self.messages else f"{self.requests:,} requests"
        return f"{self.protocol} {what} ({count})"


def round_total(exact: Decimal, minor_digits: int) -> Decimal:
    """A sum in whole coins, half to even."""
    return exact.quantize(Decimal(1).scaleb(-minor_digits), ROUND_HALF_EVEN, ROUNDING)


def line_positions(book: PriceBook) -> dict[tuple[int, int, int], int]:
    """The place of every possible line (SKU, version, tier) in any invoice of this book."""
    order = [
        (number, version, tier)
        for number, sku in enumerate(book.skus)
        for version, price in enumerate(sku.prices)
        for tier in range(FREE_TIER, len(price.tiers))
    ]
    return {key: position for position, key in enumerate(order)}
