"""The price book: a YAML file, read strictly, never edited once it was in force.

    schema: 1
    name: a word for the invoice
    currency: USD                       # ISO 4217
    protocols: [mine]                   # optional: those of adapters that do not come with Weir
    skus:
      - id: sqs.published
        title: SQS messages accepted
        meter:                          # which usage, and which of its numbers
          measure: messages             # or requests, units_64k, units_4k, bytes_in, bytes_out
          action: publish               # one value or a list; needed
          protocol: sqs                 # optional, like kind, api_action, queue_class;
                                        # outcome is ok unless given
        multiplier: {queue_class: {fifo: "2"}}        # optional, whole numbers
        prices:
          - id: sqs.published@2026-01
            from: 2026-01-01            # midnight UTC
            to: null                    # exclusive; null: still in force
            model: graduated            # or flat, with `price` in the place of `tiers`
            per: 1000000                # the number of units a price is for
            free: 1000000               # optional: free units a month
            tiers: [{up_to: 1000000000, price: "0.40"}, {up_to: null, price: "0.30"}]

What is refused, because an invoice would be wrong or could not be explained:
- a price that is not a string (YAML would make it a binary fraction), an unknown key, a key twice;
- price versions of one SKU that overlap or leave a gap; tiers that do not ascend to an open end;
- a price whose share of one unit (price / per) needs more than 12 decimals: it would be rounded
  before it is multiplied. 0.09 per GB of 2**30 bytes is such a price, 0.09 per 10**9 is not;
- another free quota from the middle of a month: the quota belongs to the month, not to the price;
- models and rules of other systems that this version does not know: volume, package, minimum,
  discounts, contracts;
- a rule, or one of its values or multipliers, that nothing Weir meters can match (`metered`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, Inexact
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import yaml

from metering.schema import INTERNAL, Outcome
from metering.schema.record import CLOSED_COLUMNS
from spark.currency import MINOR_DIGITS
from spark.invoice import EXACT
from spark.metered import SHAPES, shapes_of, shapes_of_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from spark.metered import RecordShape

SCHEMA = 1
MEASURES = ("requests", "units_64k", "units_4k", "messages", "bytes_in", "bytes_out")
FILTERS = (
    "kind", "protocol", "action", "api_action", "queue_class", "network", "region", "outcome",
)  # fmt: skip
MODELS = ("flat", "graduated")
# Known elsewhere, wrong if taken for something else: refused with a sentence of their own.
OTHER_MODELS = ("volume", "package", "peak", "time_integral", "percentage")
OTHER_RULES = ("contracts", "discount", "minimum", "packages", "included", "tax")

# decimal(19,12): a unit price has 12 decimals and at most 7 digits before them.
UNIT_PRICE_DECIMALS = 12
UNIT_PRICE_MAX = Decimal(10) ** 7
# decimal(18,0): what one tenant may use of one SKU in a month, multiplied.
QUANTITY_MAX = 10**18 - 1
MULTIPLIER_MAX = 1_000
SKUS_MAX = 1_000
# More protocols than there are origins for adapters of others.
OTHERS_MAX = 200
TIERS_MAX = 20

_ID = re.compile(r"[a-z0-9][a-z0-9._@-]{0,79}")
_PRICE = re.compile(r"\d{1,12}(\.\d{1,12})?")
_WHOLE = re.compile(r"[1-9]\d{0,3}")


class PriceBookError(ValueError):
    """A price book that cannot be used; the message names the place and the way out."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Units above the tier before it, up to `up_to` (None: all), at an exact price each."""

    up_to: int | None
    price: str
    unit_price: Decimal


@dataclass(frozen=True, slots=True)
class Price:
    """One version of a SKU's price, in force on the days [first, end)."""

    id: str
    first: date
    end: date | None
    model: str
    per: int
    free: int
    tiers: tuple[Tier, ...]


@dataclass(frozen=True, slots=True)
class Sku:
    """What is sold: the usage it counts, how it is weighed, its price versions in order."""

    id: str
    title: str
    measure: str
    filters: tuple[tuple[str, tuple[str, ...]], ...]
    multipliers: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    prices: tuple[Price, ...]


@dataclass(frozen=True, slots=True)
class PriceBook:
    """A valid price book. `sha256` is that of its canonical JSON and stands on every line."""

    name: str
    currency: str
    minor_digits: int
    skus: tuple[Sku, ...]
    sha256: str


def load_price_book(path: Path) -> PriceBook:
    """The price book of a file. Raises PriceBookError, which names the file, also for one that
    cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PriceBookError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PriceBookError(f"{path} is not UTF-8 text (byte {error.start})") from error
    try:
        return _priced(_parsed(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise PriceBookError(f"{path} is not YAML: {_one_line(error)}") from error
    except PriceBookError as error:
        raise PriceBookError(f"{path}: {error}") from error


def default_price_book() -> PriceBook:
    """Weir's own price book, which travels with the package (also inside a zip)."""
    return parse_price_book(files("spark").joinpath("pricebooks", "default.yaml").read_text())


def parse_price_book(text: str) -> PriceBook:
    """The price book in a YAML text. Raises PriceBookError, and nothing else."""
    try:
        return _priced(_parsed(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise PriceBookError(f"price book: {_one_line(error)}") from error


def _parsed(text: str) -> object:
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader, made stricter
    except ValueError as error:  # a day that no calendar has
        raise PriceBookError(f"price book: {error}") from error


def _one_line(error: Exception) -> str:
    """What PyYAML says, without the name that it has for a text that came from no file."""
    return " ".join(str(error).replace(' in "<unicode string>"', "").split())


def _priced(raw: object) -> PriceBook:
    top = _mapping(raw, "price book", ("schema", "name", "currency", "skus"), ("protocols",))
    if top["schema"] != SCHEMA:
        raise PriceBookError(f"price book: schema {top['schema']!r}, known is {SCHEMA}")
    currency = _text(top["currency"], "currency")
    if currency not in MINOR_DIGITS:
        raise PriceBookError(f"currency: {currency!r} is no code of ISO 4217")
    raw_skus = _list(top["skus"], "skus", SKUS_MAX)
    shapes = (*SHAPES, *shapes_of_others(_others(top)))
    skus = tuple(_sku(item, f"skus[{number}]", shapes) for number, item in enumerate(raw_skus))
    _unique((sku.id for sku in skus), "SKU id")
    _unique((price.id for sku in skus for price in sku.prices), "price id")
    canonical = json.dumps(raw, sort_keys=True, separators=(",", ":"), default=str)
    return PriceBook(
        name=_text(top["name"], "name"),
        currency=currency,
        minor_digits=MINOR_DIGITS[currency],
        skus=skus,
        sha256=hashlib.sha256(canonical.encode()).hexdigest(),
    )


def _others(top: Mapping[str, Any]) -> list[str]:
    """Protocols of adapters that do not come with Weir."""
    if "protocols" not in top:
        return []
    names = [_id(item, "protocols") for item in _list(top["protocols"], "protocols", OTHERS_MAX)]
    _unique(names, "protocol")
    known = {protocol for shape in SHAPES for protocol in shape.protocols} | {INTERNAL}
    for name in names:
        if name in known:
            raise PriceBookError(f"protocols: {name} is Weir's own: only others are named here")
    return names


def _sku(raw: object, place: str, shapes: Sequence[RecordShape]) -> Sku:
    fields = _mapping(raw, place, ("id", "title", "meter", "prices"), ("multiplier",))
    sku_id = _id(fields["id"], f"{place}.id")
    place = f"{place} ({sku_id})"
    meter = _mapping(
        fields["meter"],
        f"{place}.meter",
        ("measure", "action"),
        tuple(name for name in FILTERS if name != "action"),
    )
    measure = meter.pop("measure")
    if measure not in MEASURES:
        raise PriceBookError(f"{place}.meter.measure: {measure!r} is none of {_or(MEASURES)}")
    meter.setdefault("outcome", Outcome.OK.value)
    raw_prices = _list(fields["prices"], f"{place}.prices", 1_000)
    prices = tuple(_price(item, f"{place}.prices[{n}]") for n, item in enumerate(raw_prices))
    _check_versions(prices, place)
    sku = Sku(
        id=sku_id,
        title=_text(fields["title"], f"{place}.title"),
        measure=measure,
        filters=tuple(
            (name, _filter(name, meter[name], f"{place}.meter.{name}"))
            for name in FILTERS
            if name in meter
        ),
        multipliers=_multipliers(fields.get("multiplier") or {}, f"{place}.multiplier"),
        prices=prices,
    )
    _check_metered(sku, place, shapes)
    return sku


def _check_metered(sku: Sku, place: str, known: Sequence[RecordShape]) -> None:
    """Whether there can be usage for a rule and each of its values."""
    filters = dict(sku.filters)
    shapes = shapes_of(sku.measure, filters, known)
    if not shapes:
        asked = ", ".join(f"{name} {'/'.join(values)}" for name, values in sku.filters)
        raise PriceBookError(
            f"{place}.meter: nothing that Weir meters has {sku.measure} and {asked}: see"
            " docs/billing.md, What is counted"
        )
    named = [(f"{place}.meter.{name}", name, values) for name, values in sku.filters]
    named += [
        (f"{place}.multiplier.{name}", name, tuple(value for value, _ in factors))
        for name, factors in sku.multipliers
    ]
    for here, name, values in named:
        for value in values:
            if not any(shape.allows(name, value) for shape in shapes):
                raise PriceBookError(f"{here}: nothing that this rule counts is ever {value!r}")


def _filter(name: str, raw: object, place: str) -> tuple[str, ...]:
    items = raw if isinstance(raw, list) else [raw]
    values = tuple(_text(item, place) for item in _list(items, place, 100))
    _check_values(name, values, place)
    if name == "protocol" and INTERNAL in values:
        raise PriceBookError(f"{place}: moves of the server itself ({INTERNAL}) are never billed")
    if name == "outcome" and Outcome.SERVER_ERROR in values:
        raise PriceBookError(f"{place}: server errors are never billed")
    return values


def _multipliers(raw: object, place: str) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    multipliers = []
    for name, raw_factors in _mapping(raw, place, (), FILTERS).items():
        factors = []
        if not isinstance(raw_factors, dict) or not raw_factors:
            raise PriceBookError(f"{place}.{name}: expected values with their factors")
        for value, factor in raw_factors.items():
            here = f"{place}.{name}.{value}"
            _check_values(name, (_text(value, here),), here)
            if not isinstance(factor, str) or not _WHOLE.fullmatch(factor):
                raise PriceBookError(
                    f'{here}: expected a whole number as a string, such as "5";'
                    " for a fraction make a SKU of its own"
                )
            if int(factor) > MULTIPLIER_MAX:
                raise PriceBookError(f"{here}: at most {MULTIPLIER_MAX}")
            factors.append((value, int(factor)))
        multipliers.append((name, tuple(factors)))
    return tuple(multipliers)


def _price(raw: object, place: str) -> Price:
    model = raw.get("model") if isinstance(raw, dict) else None
    if model in OTHER_MODELS:
        raise PriceBookError(
            f"{place}.model: {model} is not known to this version; known are {_or(MODELS)}"
        )
    if model is not None and model not in MODELS:
        raise PriceBookError(f"{place}.model: {model!r} is none of {_or(MODELS)}")
    priced = "tiers" if model == "graduated" else "price"
    fields = _mapping(raw, place, ("id", "from", "model", "per", priced), ("to", "free"))
    per = _count(fields["per"], f"{place}.per", low=1)
    if priced == "price":
        tiers: tuple[Tier, ...] = (_tier(None, fields["price"], per, f"{place}.price"),)
    else:
        tiers = _tiers(fields["tiers"], per, f"{place}.tiers")
    first = _day(fields["from"], f"{place}.from")
    end = None if fields.get("to") is None else _day(fields["to"], f"{place}.to")
    if end is not None and end <= first:
        raise PriceBookError(f"{place}: `to` {end} is not later than `from` {first}")
    return Price(
        id=_id(fields["id"], f"{place}.id"),
        first=first,
        end=end,
        model=fields["model"],
        per=per,
        free=_count(fields.get("free", 0), f"{place}.free", low=0),
        tiers=tiers,
    )


def _tiers(raw: object, per: int, place: str) -> tuple[Tier, ...]:
    tiers = []
    last = 0
    items = _list(raw, place, TIERS_MAX)
    for number, item in enumerate(items):
        here = f"{place}[{number}]"
        fields = _mapping(item, here, ("up_to", "price"))
        if fields["up_to"] is None:
            if number != len(items) - 1:
                raise PriceBookError(f"{here}: only the last tier has no end")
            up_to = None
        else:
            up_to = _count(fields["up_to"], f"{here}.up_to", low=1)
            if up_to <= last:
                raise PriceBookError(f"{here}: up_to {up_to} does not ascend from {last}")
            last = up_to
        tiers.append(_tier(up_to, fields["price"], per, f"{here}.price"))
    if tiers[-1].up_to is not None:
        raise PriceBookError(f"{place}: the last tier has to be open: up_to: null")
    return tuple(tiers)


def _tier(up_to: int | None, raw: object, per: int, place: str) -> Tier:
    if not isinstance(raw, str) or not _PRICE.fullmatch(raw):
        raise PriceBookError(f'{place}: {raw!r} is no price: write it as a string, such as "0.40"')
    try:
        unit_price = EXACT.quantize(
            EXACT.divide(Decimal(raw), Decimal(per)), Decimal(1).scaleb(-UNIT_PRICE_DECIMALS)
        )
    except Inexact:
        raise PriceBookError(
            f"{place}: {raw} / {per} needs more than {UNIT_PRICE_DECIMALS} decimals; choose a"
            " `per` of a power of ten, or a price with fewer digits"
        ) from None
    if unit_price >= UNIT_PRICE_MAX:
        raise PriceBookError(f"{place}: a unit may cost less than {UNIT_PRICE_MAX}")
    return Tier(up_to, raw, unit_price)


def _check_versions(prices: Sequence[Price], place: str) -> None:
    for earlier, later in pairwise(prices):
        if earlier.end is None or earlier.end > later.first:
            raise PriceBookError(f"{place}: {later.id} begins before {earlier.id} ends")
        if earlier.end < later.first:
            raise PriceBookError(
                f"{place}: no price between {earlier.end} ({earlier.id} ends) and"
                f" {later.first} ({later.id} begins)"
            )
        if earlier.free != later.free and later.first.day != 1:
            raise PriceBookError(
                f"{place}: {later.id} changes the free quota on {later.first}; it belongs to the"
                " month and changes only on the first"
            )


class _StrictLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice, where YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"a key has to be a word, not {key!r}", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _mapping(
    raw: object, place: str, needed: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise PriceBookError(f"{place}: expected a mapping")
    known = (*needed, *optional)
    for key in raw:
        if key in OTHER_RULES:
            raise PriceBookError(f"{place}: {key} is not known to this version of the price book")
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise PriceBookError(f"{place}: unknown key {key}{hint}")
    for key in needed:
        if key not in raw:
            raise PriceBookError(f"{place}: {key} is missing")
    return dict(raw)


def _list(raw: object, place: str, items_max: int) -> list[Any]:
    if not isinstance(raw, list) or not 1 <= len(raw) <= items_max:
        raise PriceBookError(f"{place}: expected a list of 1 to {items_max}")
    return raw


def _text(raw: object, place: str) -> str:
    if not isinstance(raw, str) or not 1 <= len(raw) <= 200 or not raw.isprintable():
        raise PriceBookError(f"{place}: expected a text of 1 to 200 printable characters")
    return raw


def _id(raw: object, place: str) -> str:
    if not isinstance(raw, str) or not _ID.fullmatch(raw):
        raise PriceBookError(f"{place}: {raw!r}: an id has a-z 0-9 . _ @ - only, at most 80")
    return raw


def _count(raw: object, place: str, *, low: int) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw <= QUANTITY_MAX:
        raise PriceBookError(f"{place}: expected a whole number from {low} to {QUANTITY_MAX}")
    return raw


def _day(raw: object, place: str) -> date:
    # A datetime is a date too; a price changes at midnight only.
    if type(raw) is not date:
        raise PriceBookError(f"{place}: expected a day such as 2026-01-31, without quotes")
    return raw


def _check_values(name: str, values: Iterable[str], place: str) -> None:
    closed: Mapping[str, frozenset[str]] = CLOSED_COLUMNS
    for value in values:
        if name in closed and value not in closed[name]:
            raise PriceBookError(f"{place}: {value!r} is none of {_or(sorted(closed[name]))}")


def _unique(ids: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for item in ids:
        if item in seen:
            raise PriceBookError(f"{what} {item} stands twice")
        seen.add(item)


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
