"""The record format, byte for byte: what is here is on disks."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kernel.log.errors import FormatError
from kernel.log.format.record import (
    BatchEnd,
    Close,
    RecordType,
    check_known,
    decode_batch_end,
    decode_close,
    decode_header,
    encode_batch_end,
    encode_close,
    encode_record,
    is_whole,
    padded_bytes,
    seed_of,
)
from kernel.log.format.segment import SegmentKind, decode_segment_header, encode_segment_header

STORE = bytes(range(16))
SEED = seed_of(STORE)


def test_record_bytes() -> None:
    record = encode_record(RecordType.ENTRY, 3, 7, 42, b"hello", 1001, SEED)
    assert record.hex() == (
        "b7dfc52f35000000e903000000000000"
        "eccc82f9010100000300000000000000"
        "07000000000000002a00000000000000"
        "68656c6c6f000000"
    )


def test_record_bytes_follow_the_drawing() -> None:
    record = encode_record(RecordType.REWRITE, 3, 7, 42, b"hello", 1001, SEED)
    node_sum, length, sequence, leader_sum = struct.unpack_from("<IIQI", record)
    assert (length, sequence) == (53, 1001)
    assert node_sum == crc32c(record[4:20], crc32c(STORE))
    assert leader_sum == crc32c(record[20:53])
    assert struct.unpack_from("<BBHQQQ", record, 20) == (7, 1, 0, 3, 7, 42)
    assert record[48:53] == b"hello"
    assert record[53:] == bytes(3)


def test_the_leader_part_is_the_same_in_every_store() -> None:
    here = encode_record(RecordType.ENTRY, 3, 7, 42, b"hello", 1, SEED)
    there = encode_record(RecordType.ENTRY, 3, 7, 42, b"hello", 900, seed_of(bytes(16)))
    assert here[16:] == there[16:]
    assert here[:16] != there[:16]


def test_type_numbers_are_on_disk() -> None:
    assert {kind.name: kind.value for kind in RecordType} == {
        "ENTRY": 1,
        "HARD_STATE": 2,
        "RESET": 3,
        "BATCH_END": 5,
        "PAD": 6,
        "REWRITE": 7,
        "CLOSE": 9,
    }


def test_segment_header_bytes() -> None:
    page = encode_segment_header(SegmentKind.NORMAL, STORE, 5, 65536, 17)
    assert len(page) == 4096
    assert page[:60].hex() == (
        "574549525345470a0100000000000000"
        "000102030405060708090a0b0c0d0e0f"
        "0500000000000000000001000000000011000000000000"
        "00d92e9c3a"
    )
    assert page[60:] == bytes(4036)
    header = decode_segment_header(page)
    assert header is not None
    assert (header.kind, header.store, header.number) == (SegmentKind.NORMAL, STORE, 5)
    assert (header.size, header.sequence_floor) == (65536, 17)


def test_a_segment_header_of_a_newer_version_is_refused() -> None:
    page = bytearray(encode_segment_header(SegmentKind.NORMAL, STORE, 5, 65536, 17))
    page[8] = 2
    page[56:60] = struct.pack("<I", crc32c(bytes(page[:56])))
    with pytest.raises(FormatError, match="version 2"):
        decode_segment_header(bytes(page))


def test_a_record_type_of_a_newer_version_is_refused() -> None:
    record = encode_record(88, 0, 0, 0, b"", 1, SEED)
    header = decode_header(record, 0, SEED)
    assert header is not None
    with pytest.raises(FormatError, match="type 88"):
        check_known(header)


@given(
    kind=st.sampled_from(list(RecordType)),
    numbers=st.tuples(*[st.integers(0, 2**64 - 1)] * 4),
    body=st.binary(max_size=200),
)
def test_records_read_as_written(
    kind: RecordType, numbers: tuple[int, int, int, int], body: bytes
) -> None:
    group, term, index, sequence = numbers
    record = encode_record(kind, group, term, index, body, sequence, SEED)
    assert len(record) == padded_bytes(len(body))
    header = decode_header(record, 0, SEED)
    assert header is not None
    assert is_whole(record, header, 0)
    assert (header.group, header.term, header.log_index) == (group, term, index)
    assert (header.type, header.sequence, header.length) == (kind, sequence, 48 + len(body))


@given(body=st.binary(max_size=100), bit=st.integers(0, 8 * 148 - 1))
def test_every_flipped_bit_is_noticed(body: bytes, bit: int) -> None:
    record = bytearray(encode_record(RecordType.ENTRY, 1, 2, 3, body, 4, SEED))
    length = 48 + len(body)
    at = bit // 8 % length
    record[at] ^= 1 << bit % 8
    header = decode_header(bytes(record), 0, SEED)
    assert header is None or not is_whole(bytes(record), header, 0)


def test_control_bodies_read_as_written() -> None:
    end = BatchEnd(5, 4, {0: 1, 3: 20})
    assert decode_batch_end(encode_batch_end(end)) == end
    close = Close(1, 2, 3, 4, 5)
    assert decode_close(encode_close(close)) == close
