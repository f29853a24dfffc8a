from __future__ import annotations

import struct
import zlib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.schema import Batch, Record, SchemaError, decode, encode
from metering.schema.codec import ROWS_MAX
from metering.schema.record import NUMBER_COLUMNS, TEXT_BYTES_MAX, TEXT_COLUMNS
from tests.metering.samples import START_US, record_lists

FRONT = 16


def record(**columns: object) -> Record:
    defaults: dict[str, object] = {
        "node": "n1",
        "epoch": 3,
        "seq": 7,
        "emitted_at_us": START_US + 11,
        "window_start_us": START_US,
        "window_end_us": START_US + 10_000_000,
        "kind": "api",
        "tenant": "acme",
    }
    return Record(**{**defaults, **columns})


def sealed(body: bytes) -> bytes:
    """The bytes with the checksum that belongs to them."""
    body = body.ljust(FRONT, b"\0")
    checksum = zlib.crc32(body[FRONT:], zlib.crc32(body[:12]))
    return body[:12] + struct.pack("<I", checksum) + body[FRONT:]


def test_every_column_of_a_record_is_identity_text_or_number() -> None:
    identity = {"node", "epoch", "seq", "emitted_at_us", "incarnation"}
    columns = {field.name for field in fields(Record)}
    assert columns == identity | set(TEXT_COLUMNS) | set(NUMBER_COLUMNS)


@given(record_lists())
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    assert list(decode(encode(Batch.of(records))).records()) == records


def test_the_format_is_the_one_of_version_1() -> None:
    """Bytes of an earlier build: a change of the format fails here, whatever the encoder does."""
    body = bytes.fromhex(GOLDEN)
    expected = [
        record(protocol="mqtt", action="deliver", queue_class="qos1", messages=300, bytes_out=7),
        record(seq=8, kind="store", raft_group=2, log_index=2**40, cum_messages=2**40, topic="ü"),
    ]
    assert list(decode(body).records()) == expected
    assert encode(Batch.of(expected)) == body


def test_the_incarnation_of_the_log_comes_back_and_is_a_column_that_older_readers_skip() -> None:
    told = [record(incarnation=2**61 + 5), record(seq=8, incarnation=2**61 + 5)]
    body = encode(Batch.of(told))
    assert list(decode(body).records()) == told
    silent = encode(Batch.of([record(), record(seq=8)]))
    assert len(body) == len(silent) + 10
    assert decode(silent).incarnation == 0
    with pytest.raises(ValueError, match="share"):
        Batch.of([record(incarnation=1), record(seq=8, incarnation=2)])


def test_a_flush_of_many_equal_rows_takes_few_bytes_each() -> None:
    records = [record(seq=7 + number, topic=f"q{number % 50}") for number in range(1000)]
    assert len(encode(Batch.of(records))) < 4 * 1000


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_with_the_schema_error(noise: bytes) -> None:
    for body in (noise, sealed(b"WM\x01" + noise)):
        with pytest.raises(SchemaError):
            decode(body)


@given(record_lists(), st.data())
def test_a_mutation_is_refused_or_is_valid_records(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(encode(Batch.of(records)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for mutated in (sealed(bytes(body)), sealed(bytes(body[:cut]))):
        try:
            batch = decode(mutated)
        except SchemaError:
            continue
        assert decode(encode(batch)) == batch


def test_a_flipped_bit_is_found_by_the_checksum() -> None:
    body = bytearray(encode(Batch.of([record()])))
    for position in range(len(body)):
        body[position] ^= 0x10
        with pytest.raises(SchemaError):
            decode(bytes(body))
        body[position] ^= 0x10


def test_another_version_is_refused_by_name() -> None:
    body = bytearray(encode(Batch.of([record()])))
    body[2] = 2
    with pytest.raises(SchemaError, match="version 2, known is 1"):
        decode(sealed(bytes(body)))


def test_a_column_of_a_later_writer_is_skipped() -> None:
    body = bytearray(encode(Batch.of([record()])))
    body[3] += 1
    later = bytes(body) + bytes((200, 4)) + struct.pack("<i", 5)
    assert list(decode(sealed(later)).records()) == [record()]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kind": "guess"}, "unknown kind: guess"),
        ({"outcome": "fine"}, "unknown outcome: fine"),
        ({"messages": -1}, "messages is outside"),
        ({"bytes_in": 2**63}, "bytes_in is outside"),
        ({"epoch": -1}, "epoch is outside"),
        ({"topic": "x" * (TEXT_BYTES_MAX + 1)}, "256 bytes"),
        ({"window_end_us": START_US}, "not within an hour"),
        ({"window_end_us": START_US + 3_600_000_001}, "not within an hour"),
    ],
)
def test_what_no_reader_would_take_is_not_written(columns: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        encode(Batch.of([record(**columns)]))


def test_a_batch_has_a_bound() -> None:
    records = [record(seq=number) for number in range(ROWS_MAX + 1)]
    assert decode(encode(Batch.of(records[:-1]))).rows == ROWS_MAX
    with pytest.raises(SchemaError, match="16385 rows"):
        encode(Batch.of(records))


@pytest.mark.parametrize(
    "second", [record(seq=9), record(seq=8, node="n2"), record(seq=8, epoch=4), record(seq=7)]
)
def test_a_batch_is_one_run_of_one_node_and_epoch(second: Record) -> None:
    with pytest.raises(ValueError, match=r"batch|follows"):
        Batch.of([record(), second])


GOLDEN = (
    "574d011c020000000d0000003ecd8dec026e31036170690573746f72650461636d6500046d7174740764656c"
    "69766572077075626c69736802c3bc04716f7331087374616e6461726408696e7465726e616c026f6b000000"
    "00030000000000000007000000000000000ba043f6fd5d060001010102020003000000000000000300040000"
    "000000000004010504050106070600040000000000000007010408080004000000000000000901090a0a000b"
    "000000000000000b0004000000000000000c000c00000000000000400000a043f6fd5d060041008036dcf6fd"
    "5d060042000000000000000000430000000000000000004400000000000000000045022c0100004600000000"
    "0000000000470107004801ff02490000000000000000004a08000000000000000000000000000100004b0800"
    "0000000000000000000000000100004c0000000000000000004d0000000000000000004e0000000000000000"
    "004f000000000000000000"
)
