"""The rules of `spark.rating` in plain exact decimals: what the Spark job must come to."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Decimal
from functools import reduce
from typing import TYPE_CHECKING

from metering.schema import Kind
from spark.invoice import EXACT, FREE_TIER, Invoice, Line
from spark.pricebook import QUANTITY_MAX, Price, PriceBook, Sku
from spark.rating import ROUNDING, Unpriced, Version, line_positions, round_total, versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spark.period import Period
    from tests.spark.plain_usage import Usage


class RatingError(ValueError):
    """Usage that the price book cannot rate; the message names SKU, tenant and time."""


def quantity(sku: Sku, usage: Usage) -> int:
    """What one usage row adds to a SKU, multiplied; 0 if its meter does not match."""
    if not usage.billable or not _is_of(sku, usage):
        return 0
    measured: int = getattr(usage, sku.measure)
    for name, factors in sku.multipliers:
        measured *= dict(factors).get(getattr(usage, name), 1)
    return measured


def unpriced(book: PriceBook, usage: Iterable[Usage]) -> list[Unpriced]:
    """What could be billed and no rule matches, whatever it measures; in order."""
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in usage:
        if (
            row.billable
            and row.kind != Kind.GAUGE
            and not any(_is_of(sku, row) for sku in book.skus)
        ):
            total = sums[row.protocol, row.action, row.outcome]
            total[0] += row.messages
            total[1] += row.requests
    return [Unpriced(*key, *total) for key, total in sorted(sums.items())]


def _is_of(sku: Sku, usage: Usage) -> bool:
    return all(getattr(usage, name) in values for name, values in sku.filters)


def rate(book: PriceBook, usage: Iterable[Usage], period: Period) -> list[Line]:
    """The lines of a period without their shown amounts, ordered by tenant and position.

    Raises RatingError for usage at a time without a price, or more than 10**18 - 1 units.
    """
    pools: dict[tuple[str, int, int], int] = defaultdict(int)
    in_force = [versions(sku, period) for sku in book.skus]
    for row in usage:
        for number, sku in enumerate(book.skus):
            units = quantity(sku, row)
            if units:
                version = _version_at(in_force[number], sku, row)
                pools[row.tenant, number, version] += units
    lines: list[Line] = []
    free_left: dict[tuple[str, int], int] = {}
    positions = line_positions(book)
    for (tenant, number, version), units in sorted(pools.items()):
        sku = book.skus[number]
        if units <= 0:
            continue
        if units > QUANTITY_MAX:
            raise RatingError(f"{tenant} used {units} units of {sku.id}: at most {QUANTITY_MAX}")
        left = free_left.get((tenant, number), sku.prices[version].free)
        free = min(left, units)
        free_left[tenant, number] = left - free
        for tier, part, unit_price in _parts(sku.prices[version], free, units - free):
            lines.append(
                Line(
                    tenant=tenant,
                    position=positions[number, version, tier],
                    sku=sku.id,
                    price_id=sku.prices[version].id,
                    tier=tier,
                    title=sku.title,
                    quantity=part,
                    per=sku.prices[version].per,
                    unit_price=unit_price,
                    exact=EXACT.multiply(unit_price, Decimal(part)),
                )
            )
    return lines


def invoices(book: PriceBook, lines: Iterable[Line], period: Period, run_id: str) -> list[Invoice]:
    """One invoice for each tenant with lines, in order of tenant: the one place of rounding."""
    by_tenant: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_tenant[line.tenant].append(line)
    result = []
    for tenant, own in sorted(by_tenant.items()):
        exact = reduce(EXACT.add, (line.exact for line in own), Decimal(0))
        total = round_total(exact, book.minor_digits)
        shown = shares([line.exact for line in own], total, book.minor_digits)
        result.append(
            Invoice(
                tenant=tenant,
                period=str(period),
                currency=book.currency,
                minor_digits=book.minor_digits,
                exact=exact,
                total=total,
                lines=tuple(
                    line.with_amount(amount) for line, amount in zip(own, shown, strict=True)
                ),
                run_id=run_id,
                price_book=book.name,
                price_book_sha256=book.sha256,
            )
        )
    return result


def shares(amounts: Sequence[Decimal], total: Decimal, minor_digits: int) -> list[Decimal]:
    """The amounts (>= 0) in whole coins that add up to `total`, their rounded sum.

    Each is rounded down; the coins left over go one each to the largest remainders, to the
    earlier of equal ones.
    """
    coin = Decimal(1).scaleb(-minor_digits)
    shown = [amount.quantize(coin, ROUND_FLOOR, ROUNDING) for amount in amounts]
    left = int(EXACT.divide(reduce(EXACT.subtract, shown, total), coin))
    by_remainder = sorted(range(len(amounts)), key=lambda at: (shown[at] - amounts[at], at))
    for at in by_remainder[:left]:
        shown[at] = EXACT.add(shown[at], coin)
    return shown


def _version_at(in_force: list[Version], sku: Sku, row: Usage) -> int:
    for version in in_force:
        if version.start_us <= row.hour_us < version.end_us:
            return version.number
    hour = datetime.fromtimestamp(row.hour_us // 1_000_000, UTC)
    raise RatingError(f"{sku.id} has no price at {hour:%Y-%m-%d %H:%M} UTC; {row.tenant} used it")


def _parts(price: Price, free: int, billed: int) -> Iterator[tuple[int, int, Decimal]]:
    """(tier, units, unit price) of one pool: its free units, then its tiers; none without units."""
    if free:
        yield FREE_TIER, free, Decimal(0)
    lower = 0
    for tier, item in enumerate(price.tiers):
        upper = billed if item.up_to is None else min(billed, item.up_to)
        if upper > lower:
            yield tier, upper - lower, item.unit_price
            lower = upper
