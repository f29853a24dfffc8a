from __future__ import annotations

import pytest

from tests.spark.golden import CASES, Case, golden_book, golden_records
from tests.spark.plain_rating import invoices, rate
from tests.spark.plain_usage import aggregate
from tests.spark.samples import NOVEMBER


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tenant)
def test_the_invoice_is_the_one_worked_out_by_hand(case: Case) -> None:
    book = golden_book()
    usage = aggregate(golden_records(), NOVEMBER).usage
    by_tenant = {
        invoice.tenant: invoice
        for invoice in invoices(book, rate(book, usage, NOVEMBER), NOVEMBER, "r1")
    }
    invoice = by_tenant.get(case.tenant)
    if case.total is None:
        assert invoice is None
        return
    assert invoice is not None
    assert str(invoice.total) == case.total
    lines = [(line.sku, line.quantity, str(line.amount)) for line in invoice.lines]
    assert lines == case.lines
