"""An invoice: its values, its JSON form and its printable form.

Amounts are decimals from end to end; in JSON they are strings, because a JSON number is a binary
fraction to most readers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

# The tier number of a line that shows the units of the free quota.
FREE_TIER = -1

EXACT_DECIMALS = 12
_TWELVE = Decimal(1).scaleb(-EXACT_DECIMALS)
# Room for every digit of a sum of decimal(38,12) (the default context has 28), and no rounding.
EXACT = Context(prec=80, traps=[Inexact, InvalidOperation, Overflow])


@dataclass(frozen=True, slots=True)
class Line:
    """Units of one SKU at one price: `exact` = quantity x unit_price, `amount` as shown."""

    tenant: str
    position: int
    sku: str
    price_id: str
    tier: int
    title: str
    quantity: int
    per: int
    unit_price: Decimal
    exact: Decimal
    amount: Decimal = Decimal(0)

    def with_amount(self, amount: Decimal) -> Line:
        return replace(self, amount=amount)


@dataclass(frozen=True, slots=True)
class Invoice:
    """A draft: what one tenant owes for one period. The amounts of the lines add up to total."""

    tenant: str
    period: str
    currency: str
    minor_digits: int
    exact: Decimal
    total: Decimal
    lines: tuple[Line, ...]
    run_id: str
    price_book: str
    price_book_sha256: str

    def to_json(self) -> str:
        """Canonical JSON: equal invoices have equal bytes."""
        coin = Decimal(1).scaleb(-self.minor_digits)
        fields = {
            "schema": 1,
            "status": "draft",
            "tenant": self.tenant,
            "period": self.period,
            "currency": self.currency,
            "minor_digits": self.minor_digits,
            "exact": _digits(self.exact, _TWELVE),
            "total": _digits(self.total, coin),
            "run_id": self.run_id,
            "price_book": self.price_book,
            "price_book_sha256": self.price_book_sha256,
            "lines": [
                {
                    "position": line.position,
                    "sku": line.sku,
                    "price_id": line.price_id,
                    "tier": line.tier,
                    "title": line.title,
                    "quantity": line.quantity,
                    "per": line.per,
                    "unit_price": _digits(line.unit_price, _TWELVE),
                    "exact": _digits(line.exact, _TWELVE),
                    "amount": _digits(line.amount, coin),
                }
                for line in self.lines
            ],
        }
        return json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Invoice:
        """The invoice that `to_json` wrote. Raises ValueError or KeyError for anything else."""
        fields: dict[str, Any] = json.loads(text)
        if fields["schema"] != 1:
            raise ValueError(f"an invoice of schema {fields['schema']}, known is 1")
        tenant = fields["tenant"]
        return cls(
            tenant=tenant,
            period=fields["period"],
            currency=fields["currency"],
            minor_digits=fields["minor_digits"],
            exact=Decimal(fields["exact"]),
            total=Decimal(fields["total"]),
            lines=tuple(_line(tenant, item) for item in fields["lines"]),
            run_id=fields["run_id"],
            price_book=fields["price_book"],
            price_book_sha256=fields["price_book_sha256"],
        )


def render(invoice: Invoice) -> str:
    """The invoice as a page of text for a terminal or a printer."""
    rows = [("item", "quantity", "price", f"amount {invoice.currency}")]
    for line in invoice.lines:
        free = line.tier == FREE_TIER
        rows.append(
            (
                f"{line.title}{' (free)' if free else ''}  {line.price_id}",
                f"{line.quantity:,}",
                "" if free else _price(line, invoice.minor_digits),
                f"{line.amount:,.{invoice.minor_digits}f}",
            )
        )
    rows.append(("total", "", "", f"{invoice.total:,.{invoice.minor_digits}f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    rule = "-" * (sum(widths) + 6)
    printed = [
        "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in rows
    ]
    head = [
        f"Invoice (draft)  tenant {invoice.tenant}  period {invoice.period} UTC",
        f"price book {invoice.price_book} {invoice.price_book_sha256[:12]}  run {invoice.run_id}",
    ]
    return "\n".join((*head, rule, printed[0], rule, *printed[1:-1], rule, printed[-1], ""))


def _line(tenant: str, fields: dict[str, Any]) -> Line:
    return Line(
        tenant=tenant,
        position=fields["position"],
        sku=fields["sku"],
        price_id=fields["price_id"],
        tier=fields["tier"],
        title=fields["title"],
        quantity=fields["quantity"],
        per=fields["per"],
        unit_price=Decimal(fields["unit_price"]),
        exact=Decimal(fields["exact"]),
        amount=Decimal(fields["amount"]),
    )


def _price(line: Line, minor_digits: int) -> str:
    """The price as the price book has it, with at least the digits of a coin."""
    price = EXACT.multiply(line.unit_price, Decimal(line.per)).normalize(EXACT)
    digits = max(minor_digits, -int(price.as_tuple().exponent))
    return f"{price:,.{digits}f}" + (f" per {line.per:,}" if line.per > 1 else "")


def _digits(value: Decimal, unit: Decimal) -> str:
    return f"{value.quantize(unit, context=EXACT):f}"
