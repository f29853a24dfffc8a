from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from metering.schema import ManifestEntry, Record
from tests.metering.test_manifest import ENTRY, NEXT
from tests.spark.golden import amqp, golden_book, golden_records
from tests.spark.plain_rating import invoices, rate
from tests.spark.plain_usage import aggregate
from tests.spark.reconcile import (
    Break,
    OffsetGrowth,
    check_archive,
    check_invoices,
    check_proof,
    check_rating,
    check_returns,
    check_routed,
)
from tests.spark.samples import NOVEMBER, record

USAGE = aggregate(
    [
        record(0, **amqp("route", 30)),
        record(1, **amqp("route", 5, protocol="mqtt")),
        record(2, **amqp("route", 7, protocol="internal")),
        record(3, **amqp("publish", 12)),
        record(4, **amqp("route", 4, topic="other")),
    ],
    NOVEMBER,
).usage


def test_routed_is_the_growth_of_the_offsets_less_internal_moves() -> None:
    growth = [OffsetGrowth("acme", "q", 100, 142), OffsetGrowth("acme", "other", 0, 4)]
    assert check_routed(USAGE, growth) == []


def test_one_message_more_or_less_is_a_break() -> None:
    for end, expected in ((141, 34), (143, 36)):
        growth = [OffsetGrowth("acme", "q", 100, end), OffsetGrowth("acme", "other", 0, 4)]
        assert check_routed(USAGE, growth) == [Break("routed", "tenant acme topic q", expected, 35)]


def test_a_topic_that_only_one_side_knows_is_a_break() -> None:
    growth = [OffsetGrowth("acme", "q", 100, 142), OffsetGrowth("acme", "third", 0, 2)]
    assert [str(item) for item in check_routed(USAGE, growth)] == [
        "routed: tenant acme topic other: expected 0, found 4",
        "routed: tenant acme topic third: expected 2, found 0",
    ]


def test_the_archive_reaches_from_the_first_offset_to_the_last() -> None:
    other: ManifestEntry = replace(ENTRY, queue=1, from_offset=3, to_offset=5)
    entries = [ENTRY, NEXT, other]
    assert check_archive(entries, {0: (0, 12), 1: (3, 5), 2: (9, 9)}) == []
    assert check_archive(entries, {0: (0, 13), 1: (2, 5), 2: (0, 1)}) == [
        Break("archive", "queue 0, end offset", 13, 12),
        Break("archive", "queue 1, first offset", 2, 3),
        Break("archive", "queue 2, first offset", 0, 1),
        Break("archive", "queue 2, end offset", 1, 0),
    ]


def test_offsets_that_the_log_has_dropped_since_are_no_break() -> None:
    assert check_archive([ENTRY, NEXT], {0: (11, 12)}) == []


def test_a_changed_invoice_is_a_break() -> None:
    book = golden_book()
    usage = aggregate(golden_records(), NOVEMBER).usage
    made = invoices(book, rate(book, usage, NOVEMBER), NOVEMBER, "r1")
    assert check_invoices(made) == []
    assert check_rating(book, usage, made, NOVEMBER) == []
    first = next(invoice for invoice in made if invoice.tenant == "edge")
    cent = Decimal("0.01")
    wrong = replace(first, total=first.total + cent)
    assert check_invoices([wrong]) == [Break("invoices", "edge, total", first.total, wrong.total)]
    line = replace(first.lines[1], quantity=9, amount=first.lines[1].amount + cent)
    others = [invoice for invoice in made if invoice is not first]
    changed = replace(first, lines=(first.lines[0], line))
    breaks = check_rating(book, usage, [*others, changed], NOVEMBER)
    assert [item.subject for item in breaks] == ["edge line 1, quantity", "edge line 1, amount"]
    missing = check_rating(book, usage, others, NOVEMBER)
    assert {item.subject.split(",")[0] for item in missing} == {"edge line 0", "edge line 1"}


def proof_rows(*rows: tuple[str, int, int, int]) -> list[Record]:
    """Rows of `route`: (protocol, log index, routed in all, end offset)."""
    return [
        record(
            number,
            **amqp(
                "route",
                routed,
                protocol=protocol,
                raft_group=1,
                cum_since=3,
                log_index=index,
                gauge_max=end,
            ),
        )
        for number, (protocol, index, routed, end) in enumerate(rows)
    ]


def test_the_archive_proves_its_own_counts() -> None:
    rows = proof_rows(("amqp", 5, 7, 9), ("internal", 5, 2, 9), ("amqp", 8, 10, 12))
    assert check_proof(rows, NOVEMBER) == []
    wrong = proof_rows(("amqp", 5, 7, 9), ("internal", 5, 2, 9), ("amqp", 8, 10, 13))
    assert [str(item) for item in check_proof(wrong, NOVEMBER)] == [
        "proof: acme q 1 3: expected 13, found 12"
    ]


def test_more_returned_than_delivered_is_a_break() -> None:
    common = {"kind": "store", "protocol": "sqs", "topic": "q", "raft_group": 1, "cum_since": 3}
    rows = [
        record(0, action="deliver", group="a", cum_messages=5, log_index=7, **common),
        record(1, action="deliver", group="b", cum_messages=4, log_index=7, **common),
        record(2, action="return", group="a", cum_messages=9, log_index=8, **common),
    ]
    assert check_returns(rows, NOVEMBER) == []
    again = replace(rows[2], seq=3, cum_messages=10, log_index=9)
    assert [str(item) for item in check_returns([*rows, again], NOVEMBER)] == [
        "returns: acme q 1 3 sqs: expected 9, found 10"
    ]
