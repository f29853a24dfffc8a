from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from spark.invoice import Invoice, render
from tests.spark.golden import golden_book, golden_records
from tests.spark.plain_rating import invoices, rate
from tests.spark.plain_usage import aggregate
from tests.spark.samples import NOVEMBER


def golden_invoices() -> dict[str, Invoice]:
    book = golden_book()
    lines = rate(book, aggregate(golden_records(), NOVEMBER).usage, NOVEMBER)
    return {invoice.tenant: invoice for invoice in invoices(book, lines, NOVEMBER, "r1")}


def test_json_keeps_every_digit() -> None:
    for invoice in golden_invoices().values():
        text = invoice.to_json()
        assert Invoice.from_json(text) == invoice
        assert Invoice.from_json(text).to_json() == text


def test_json_holds_amounts_of_any_size_as_strings() -> None:
    invoice = golden_invoices()["edge"]
    huge = Decimal("99999999999999999999999999.123456789012")
    text = replace(invoice, exact=huge).to_json()
    assert '"exact": "99999999999999999999999999.123456789012"' in text
    assert Invoice.from_json(text).exact == huge


def test_another_schema_is_refused() -> None:
    text = golden_invoices()["edge"].to_json().replace('"schema": 1', '"schema": 2')
    with pytest.raises(ValueError, match="schema 2, known is 1"):
        Invoice.from_json(text)


def test_an_invoice_prints_as_a_page() -> None:
    book = golden_book()
    assert (
        render(golden_invoices()["edge-above"])
        == f"""\
Invoice (draft)  tenant edge-above  period 2026-11 UTC
price book golden {book.sha256[:12]}  run r1
------------------------------------------------------------
item                             quantity  price  amount USD
------------------------------------------------------------
Calls of 64 KiB (free)  calls@1         5               0.00
Calls of 64 KiB  calls@1               10   0.37        3.70
Calls of 64 KiB  calls@1                1   0.11        0.11
------------------------------------------------------------
total                                                   3.81
"""
    )


def test_a_price_prints_as_the_book_has_it() -> None:
    page = render(golden_invoices()["remainders"])
    assert "0.005 per 1,000,000,000" in page
    assert "1.00 per 10" in render(golden_invoices()["fan-out"])
