from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.invoice import Invoice
from spark.period import Period
from spark.pricebook import QUANTITY_MAX, PriceBook, parse_price_book
from spark.rating import round_total
from tests.spark.golden import DAY_US, golden_book
from tests.spark.plain_rating import RatingError, invoices, rate, shares
from tests.spark.plain_usage import Usage, aggregate
from tests.spark.samples import NOVEMBER, random_records, record

money = st.decimals(min_value=0, max_value=10**9, places=12, allow_nan=False)


def usage(hour_us: int = NOVEMBER.start_us, **columns: object) -> Usage:
    (row,) = aggregate([record(0, hour_us, **columns)], Period.parse("2026-11")).usage
    return row


def book(currency: str = "USD", price: str = "1", per: int = 1) -> PriceBook:
    return parse_price_book(
        f"""
schema: 1
name: small
currency: {currency}
skus:
  - id: sold
    title: Sold
    meter: {{measure: messages, action: publish}}
    prices: [{{id: sold@1, from: 2026-02-01, to: null, model: flat, per: {per}, price: "{price}"}}]
"""
    )


BOOK_OF_DELIVERIES = """
schema: 1
name: deliveries
currency: EUR
skus:
  - id: delivered
    title: Delivered
    meter: {measure: messages, action: deliver}
    prices: [{id: delivered@1, from: 2026-02-01, to: null, model: flat, per: 1, price: "1"}]
"""


def bill(prices: PriceBook, rows: list[Usage], period: Period = NOVEMBER) -> list[Invoice]:
    return invoices(prices, rate(prices, rows, period), period, "r1")


@given(st.lists(money, min_size=1, max_size=20), st.sampled_from([0, 2, 3]))
def test_shown_amounts_add_up_to_the_rounded_total(amounts: list[Decimal], digits: int) -> None:
    total = round_total(sum(amounts, Decimal(0)), digits)
    shown = shares(amounts, total, digits)
    coin = Decimal(1).scaleb(-digits)
    assert sum(shown, Decimal(0)) == total
    for exact, amount in zip(amounts, shown, strict=True):
        assert abs(exact - amount) < coin
        assert amount == amount.quantize(coin)


@pytest.mark.parametrize(
    ("currency", "price", "messages", "total"),
    [
        ("JPY", "0.5", 5, "2"),
        ("JPY", "0.5", 7, "4"),
        ("USD", "0.005", 5, "0.02"),
        ("KWD", "0.0005", 5, "0.002"),
        ("KWD", "0.0005", 7, "0.004"),
    ],
)
def test_rounding_is_to_the_coin_of_the_currency(
    currency: str, price: str, messages: int, total: str
) -> None:
    (invoice,) = bill(book(currency, price), [usage(messages=messages)])
    assert str(invoice.total) == total


def test_large_amounts_are_exact() -> None:
    units = 10**15 - 1
    (invoice,) = bill(book(price="9999999.999999999999"), [usage(messages=units)])
    digits = str(9999999999999999999 * units)
    assert f"{invoice.exact:f}" == f"{digits[:-12]}.{digits[-12:]}"


def test_more_units_than_18_digits_are_refused() -> None:
    rows = [usage(messages=QUANTITY_MAX), usage(NOVEMBER.start_us + DAY_US, messages=1)]
    assert bill(book(), rows[:1])[0].lines[0].quantity == QUANTITY_MAX
    with pytest.raises(RatingError, match="acme used 1000000000000000000 units of sold"):
        bill(book(), rows)


def test_usage_without_a_price_is_refused_and_not_given_away() -> None:
    january = Period.parse("2026-01")
    row = usage(messages=1)._replace(hour_us=january.start_us)
    with pytest.raises(RatingError, match=r"sold has no price at 2026-01-01 00:00 UTC; acme"):
        bill(book(), [row], january)


def test_what_was_returned_in_a_month_beyond_what_was_delivered_costs_nothing() -> None:
    both = [record(0, messages=3, action="deliver"), record(1, messages=5, action="return")]
    usage_rows = list(aggregate(both, NOVEMBER).usage)
    assert [row.messages for row in usage_rows] == [-2]
    prices = parse_price_book(BOOK_OF_DELIVERIES)
    assert bill(prices, usage_rows) == []
    more = record(2, NOVEMBER.start_us + DAY_US, messages=4, action="deliver")
    (invoice,) = bill(prices, list(aggregate([*both, more], NOVEMBER).usage))
    assert [line.quantity for line in invoice.lines] == [2]


def test_a_leap_day_belongs_to_its_february() -> None:
    february = Period.parse("2028-02")
    assert february.end_us - february.start_us == 29 * DAY_US
    records = [record(0, february.start_us + 28 * DAY_US, messages=3)]
    (invoice,) = bill(book(), list(aggregate(records, february).usage), february)
    assert str(invoice.total) == "3.00"


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_graduated_price_is_monotone_and_never_jumps(fewer: int, more: int) -> None:
    def owed(units: int) -> Decimal:
        rows = [usage(action="receive", units_64k=units)] if units else []
        return sum((invoice.exact for invoice in bill(golden_book(), rows)), Decimal(0))

    fewer, more = sorted((fewer, more))
    assert Decimal(0) <= owed(more) - owed(fewer) <= (more - fewer) * Decimal("0.37")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_order_and_repeats_and_windows_do_not_change_an_invoice(seed: int) -> None:
    records = random_records(seed, 40)
    expected = bill(golden_book(), list(aggregate(records, NOVEMBER).usage))
    shuffled = [*records, *records[::3]]
    Random(seed).shuffle(shuffled)
    assert bill(golden_book(), list(aggregate(shuffled, NOVEMBER).usage)) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 3_000))
def test_splitting_usage_into_windows_does_not_change_an_invoice(
    parts: list[int], minutes: int
) -> None:
    step_us = minutes * 60_000_000
    split = [
        record(number, NOVEMBER.start_us + number * step_us, action="receive", units_64k=units)
        for number, units in enumerate(parts)
    ]
    whole = [record(0, action="receive", units_64k=sum(parts))]
    before_the_change = NOVEMBER.start_us + 15 * DAY_US
    split = [item for item in split if item.window_start_us < before_the_change]
    if len(split) < len(parts):
        return
    totals = [
        [invoice.total for invoice in bill(golden_book(), list(aggregate(rows, NOVEMBER).usage))]
        for rows in (split, whole)
    ]
    assert totals[0] == totals[1]
