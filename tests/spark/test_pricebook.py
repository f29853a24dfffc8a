from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.rocketmq.services import call_counting as rocketmq_calls
from adapters.sqs.actions import call_counting as sqs_calls
from spark.pricebook import (
    PriceBookError,
    default_price_book,
    load_price_book,
    parse_price_book,
)
from tests.spark.golden import PRICES

SKU = """
  - id: a
    title: A
    meter: {measure: messages, action: publish}
    prices:
"""
FLAT = "      - {id: a@1, from: 2026-01-01, to: null, model: flat, per: 1, price: '0.4'}\n"


def book(skus: str = SKU + FLAT, currency: str = "USD") -> str:
    return f"schema: 1\nname: test\ncurrency: {currency}\nskus:{skus}"


def test_the_default_book_prices_published_and_delivered_of_each_protocol() -> None:
    prices = default_price_book()
    sold = {(dict(sku.filters)["protocol"], dict(sku.filters)["action"]) for sku in prices.skus}
    assert sold == {
        ((protocol,), (action,))
        for protocol in ("sqs", "amqp", "mqtt", "rocketmq")
        for action in ("publish", "deliver")
    }


def test_a_price_is_exact() -> None:
    prices = parse_price_book(PRICES)
    egress = next(sku for sku in prices.skus if sku.id == "egress")
    assert f"{egress.prices[0].tiers[0].unit_price:f}" == "0.000000000005"


def test_the_hash_is_of_the_content_and_not_of_its_layout() -> None:
    one = parse_price_book(book())
    assert parse_price_book("# a remark\n" + book()).sha256 == one.sha256
    assert parse_price_book(book().replace("'0.4'", "'0.40'")).sha256 != one.sha256


def test_only_ok_is_billed_unless_the_meter_says_more() -> None:
    (sku,) = parse_price_book(book()).skus
    assert dict(sku.filters) == {"action": ("publish",), "outcome": ("ok",)}


TITLE = "    title: A\n"
PRICE = "      - {id: a@1, from: 2026-01-01, to: null, model: "
GRADUATED = PRICE + "graduated, per: 1, tiers: "


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (PRICE + "flat, per: 1, price: 0.4}", "0.4 is no price: write it as a string"),
        (PRICE + "flat, per: 1, price: '-1'}", "'-1' is no price"),
        (PRICE + "flat, per: 1, price: '1e3'}", "'1e3' is no price"),
        (PRICE + "flat, per: 3, price: '1'}", "1 / 3 needs more than 12 decimals"),
        (PRICE + "flat, per: 1073741824, price: '0.09'}", "needs more than 12 decimals"),
        (PRICE + "flat, per: 1, price: '10000000'}", "may cost less than 10000000"),
        (PRICE + "flat, per: 0, price: '1'}", "per: expected a whole number from 1"),
        (PRICE + "flat, per: true, price: '1'}", "per: expected a whole number"),
        (PRICE + "flat, per: 1, free: -1, price: '1'}", "free: expected a whole number from 0"),
        (PRICE + "volume, per: 1, tiers: []}", "volume is not known to this version"),
        (PRICE + "package, per: 1, price: '1'}", "package is not known to this version"),
        (PRICE + "flot, per: 1, price: '1'}", "'flot' is none of flat or graduated"),
        (PRICE + "flat, per: 1, price: '1', minimum: '5'}", "minimum is not known"),
        (PRICE + "flat, per: 1, prise: '1'}", "unknown key prise; did you mean price?"),
        (PRICE + "flat, per: 1}", "price is missing"),
        (PRICE + "flat, per: 1, price: '1', price: '2'}", "the key price stands twice"),
        (GRADUATED + "[]}", "tiers: expected a list of 1"),
        (GRADUATED + "[{up_to: 5, price: '1'}]}", "the last tier has to be open"),
        (GRADUATED + "[{up_to: null, price: '1'}, {up_to: 5, price: '1'}]}", "only the last tier"),
        (
            GRADUATED
            + "[{up_to: 5, price: '1'}, {up_to: 5, price: '1'}, {up_to: null, price: '1'}]}",
            "up_to 5 does not ascend from 5",
        ),
        (
            PRICE.replace("2026-01-01", "'2026-01-01'") + "flat, per: 1, price: '1'}",
            "without quotes",
        ),
        (
            PRICE.replace("2026-01-01", "2026-01-01 10:00:00") + "flat, per: 1, price: '1'}",
            "expected a day such as",
        ),
        (
            PRICE.replace("null", "2026-01-01") + "flat, per: 1, price: '1'}",
            "is not later than `from`",
        ),
        (PRICE.replace("a@1", "A 1") + "flat, per: 1, price: '1'}", "an id has a-z 0-9"),
    ],
)
def test_a_price_that_cannot_be_billed_is_refused_with_its_place(prices: str, message: str) -> None:
    with pytest.raises(PriceBookError) as caught:
        parse_price_book(book(SKU + prices))
    assert message in str(caught.value)


METER = "    meter: {measure: messages, action: publish}\n"


@pytest.mark.parametrize(
    ("meter", "message"),
    [
        ("protocol: kafka, measure: messages, action: publish", "nothing that Weir meters"),
        ("kind: gauge, measure: messages, action: connections", "nothing that Weir meters"),
        ("measure: messages, action: storage", "nothing that Weir meters"),
        ("measure: requests, action: deliver", "has requests and action deliver"),
        ("measure: units_4k, action: [ack, deliver]", "action: nothing that this rule counts"),
        ("protocol: amqp, measure: requests, action: receive", "nothing that Weir meters"),
        ("protocol: sqs, queue_class: qos1, measure: messages, action: publish", "qos1"),
        ("kind: store, protocol: mqtt, measure: messages, action: deliver", "kind store"),
        ("measure: messages, action: publish, network: internet", "network internet"),
        ("measure: messages, action: publish, region: eu", "region eu"),
        ("measure: messages, action: publish, api_action: SendMessage", "api_action SendMessage"),
        ("measure: messages, action: publish, protocol: [sqs, sqss]", "protocol: .*ever 'sqss'"),
        ("measure: messages, action: return", "nothing that Weir meters"),
    ],
)
def test_a_rule_that_can_never_match_is_refused(meter: str, message: str) -> None:
    with pytest.raises(PriceBookError, match=message):
        parse_price_book(book((SKU + FLAT).replace(METER, f"    meter: {{{meter}}}\n")))


def with_others(
    names: str, meter: str = "protocol: line, measure: messages, action: publish"
) -> str:
    text = book((SKU + FLAT).replace(METER, f"    meter: {{{meter}}}\n"))
    return text.replace("skus:", f"protocols: {names}\nskus:")


@pytest.mark.parametrize(
    "meter",
    [
        "protocol: line, measure: messages, action: publish, queue_class: delay",
        "protocol: [line, amqp], measure: messages, action: [publish, deliver, route]",
        "protocol: line, measure: requests, action: receive, outcome: [ok, empty]",
        "protocol: line, measure: bytes_out, action: connect",
    ],
)
def test_a_protocol_of_somebody_elses_adapter_can_be_priced(meter: str) -> None:
    assert parse_price_book(with_others("[line]", meter)).skus
    with pytest.raises(PriceBookError, match=r"nothing that|ever 'line'"):
        parse_price_book(with_others("[lime]", meter))


@pytest.mark.parametrize(
    "names", ["[amqp]", "[internal]", "[a, a]", "[]", "line", "['A b']", "[1]"]
)
def test_others_protocols_are_named_once_and_are_not_weirs(names: str) -> None:
    with pytest.raises(PriceBookError, match="protocol"):
        parse_price_book(with_others(names))


def test_every_call_of_an_api_can_be_priced() -> None:
    for protocol, actions in (("sqs", sqs_calls.ACTIONS), ("rocketmq", rocketmq_calls.ACTIONS)):
        for action in {*actions.values(), "admin"}:
            meter = (
                f"protocol: {protocol}, measure: requests, action: {action}, outcome: [ok, empty]"
            )
            text = (SKU + FLAT).replace(METER, f"    meter: {{{meter}}}\n")
            assert parse_price_book(book(text)).skus


@pytest.mark.parametrize(
    ("meter", "factors"),
    [
        ("protocol: rocketmq, measure: units_4k, action: deliver", "queue_class: {delay: '5'}"),
        ("protocol: sqs, measure: messages, action: publish", "queue_class: {qos2: '5'}"),
        ("protocol: sqs, measure: messages, action: publish", "protocol: {amqp: '5'}"),
    ],
)
def test_a_weight_that_can_never_weigh_is_refused(meter: str, factors: str) -> None:
    told = f"    meter: {{{meter}}}\n    multiplier: {{{factors}}}\n"
    with pytest.raises(PriceBookError, match=r"multiplier\..*nothing that this rule counts"):
        parse_price_book(book((SKU + FLAT).replace(METER, told)))


def versions(*dates: str) -> str:
    lines = []
    for number, text in enumerate(dates):
        first, end, free = text.split()
        lines.append(
            f"      - {{id: a@{number}, from: {first}, to: {end}, model: flat, per: 1,"
            f" free: {free}, price: '1'}}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (versions("2026-01-01 2026-03-01 0", "2026-02-01 null 0"), "a@1 begins before a@0 ends"),
        (versions("2026-01-01 null 0", "2026-02-01 null 0"), "a@1 begins before a@0 ends"),
        (versions("2026-01-01 2026-03-01 0", "2026-03-02 null 0"), "no price between 2026-03-01"),
        (versions("2026-02-01 2026-03-01 0", "2026-01-01 null 0"), "a@1 begins before a@0 ends"),
        (versions("2026-01-01 2026-03-02 5", "2026-03-02 null 6"), "changes the free quota on"),
    ],
)
def test_price_versions_follow_each_other_without_gap_or_overlap(prices: str, message: str) -> None:
    with pytest.raises(PriceBookError, match=message):
        parse_price_book(book(SKU + prices))


def test_a_free_quota_may_change_with_the_month() -> None:
    parse_price_book(book(SKU + versions("2026-01-01 2026-03-01 5", "2026-03-01 null 6")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("measure: messages", "measure: gauge_max"), "'gauge_max' is none of"),
        (("action: publish", "protocol: sqs"), "action is missing"),
        (("action: publish", "action: pubish"), "'pubish' is none of"),
        (("action: publish", "action: publish, protocol: internal"), "are never billed"),
        (("action: publish", "action: publish, outcome: server_error"), "are never billed"),
        (("action: publish", "action: publish, tenant: acme"), "unknown key tenant"),
        (
            ("    title: A\n", "    title: A\n    multiplier: {queue_class: {fifo: 5}}\n"),
            "as a string",
        ),
        (
            ("    title: A\n", "    title: A\n    multiplier: {queue_class: {fifo: '0.5'}}\n"),
            "SKU of its",
        ),
        (
            ("    title: A\n", "    title: A\n    multiplier: {queue_class: {fofi: '5'}}\n"),
            "'fofi' is none",
        ),
        (
            ("    title: A\n", "    title: A\n    multiplier: {topic: {x: '5'}}\n"),
            "unknown key topic",
        ),
        (("currency: USD", "currency: EURO"), "'EURO' is no code of ISO 4217"),
        (("schema: 1", "schema: 2"), "schema 2, known is 1"),
        (("schema: 1", "contracts: []\nschema: 1"), "contracts is not known to this version"),
        (("name: test", "1: test"), "a key has to be a word"),
    ],
)
def test_other_mistakes_are_refused_with_their_place(change: tuple[str, str], message: str) -> None:
    changed = book().replace(*change)
    assert changed != book()
    with pytest.raises(PriceBookError) as caught:
        parse_price_book(changed)
    assert message in str(caught.value)


def test_an_id_stands_once() -> None:
    with pytest.raises(PriceBookError, match="SKU id a stands twice"):
        parse_price_book(book(SKU + FLAT + SKU + FLAT))


def test_a_file_that_is_no_price_book_is_named_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "book.yaml"
    for content, message in (
        (None, f"{file} cannot be read: No such file or directory"),
        (b"\xff\xfe\x00", f"{file} is not UTF-8 text (byte 0)"),
        (b"%PDF-1.7 {", f"{file} is not YAML: "),
        (b"a: [\nb: }", f"{file} is not YAML: "),
        (b"a: \0", f"{file} is not YAML: "),
        (b"", f"{file}: price book: expected a mapping"),
        (book().replace("schema: 1", "schema: 2").encode(), f"{file}: price book: schema 2, known"),
    ):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(PriceBookError) as caught:
            load_price_book(file)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
        assert "<unicode string>" not in str(caught.value)
    with pytest.raises(PriceBookError) as caught:
        load_price_book(tmp_path)
    assert str(caught.value) == f"{tmp_path} cannot be read: Is a directory"
    file.write_text(book(), encoding="utf-8")
    assert load_price_book(file).name == "test"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.text(max_size=60))
def test_any_text_is_a_book_or_a_price_book_error(text: str) -> None:
    with pytest.raises(PriceBookError):
        parse_price_book(text)


@settings(max_examples=40, deadline=None)
@given(st.data(), values)
def test_any_value_in_any_place_is_accepted_or_a_price_book_error(
    data: st.DataObject, value: object
) -> None:
    raw = yaml.safe_load(PRICES)
    node = raw
    for _ in range(data.draw(st.integers(0, 6))):
        inner = node if isinstance(node, (dict, list)) else None
        if not inner:
            break
        keys = sorted(inner) if isinstance(inner, dict) else list(range(len(inner)))
        place = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()):
            inner[place] = value
            break
        node = inner[place]
    try:
        parse_price_book(yaml.safe_dump(raw))
    except PriceBookError:
        return
