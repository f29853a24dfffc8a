"""Metering records as the body of one `__metering` message.

Columns, not rows: most columns of a window hold one value for all rows, and whole columns pack at
C speed, so that a flush of thousands of rows does not hold up the event loop.

    offset  size  field
    0       2     magic "WM"
    2       1     version (SCHEMA_VERSION)
    3       1     number of columns, c
    4       4     number of rows, n >= 1
    8       4     number of strings, s
    12      4     CRC-32 of all other bytes
    16            s strings: length u8, UTF-8 bytes
                  node u32 (a string's number), epoch i64, first_seq i64, emitted_at_us i64
                  c columns:
                      id u8, form u8
                      form 0: one i64, the value of every row
                      form 1, 2, 4, 8: n signed integers of that many bytes
                  the column 128 is the incarnation, of form 0; without it, 0

All integers are little-endian. A value of a text column is the number of a string. A reader skips
a column whose id it does not know (id, form and n tell its length) and refuses another version.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from metering.schema.record import (
    CLOSED_COLUMNS,
    HOUR_US,
    NUMBER_COLUMNS,
    NUMBER_MAX,
    SCHEMA_VERSION,
    TEXT_BYTES_MAX,
    TEXT_COLUMNS,
    Batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAGIC = b"WM"

# Rows of one message. A flush holds 4,096 (collector.py); the rest is room for a later writer.
ROWS_MAX = 16_384

_FIXED = struct.Struct("<2sBBII")
_CHECKSUM = struct.Struct("<I")
_FRONT_SIZE = _FIXED.size + _CHECKSUM.size
_HEADER = struct.Struct("<Iqqq")
_COLUMN = struct.Struct("<BB")
_CONSTANT = struct.Struct("<q")
_FORMS = {1: "b", 2: "h", 4: "i", 8: "q"}

# The ids are the format: new columns take new numbers, old numbers are never used again.
_TEXT_IDS = {name: number for number, name in enumerate(TEXT_COLUMNS, start=1)}
_NUMBER_IDS = {name: number for number, name in enumerate(NUMBER_COLUMNS, start=64)}
_INCARNATION_ID = 128
_TEXT_NAMES = {number: name for name, number in _TEXT_IDS.items()}
_NUMBER_NAMES = {number: name for name, number in _NUMBER_IDS.items()}


class SchemaError(ValueError):
    """The bytes are not metering records of a version that this reader knows."""


def encode(batch: Batch) -> bytes:
    """The message body of a batch.

    Raises SchemaError for values that no reader would take: no rows or more than ROWS_MAX, a text
    longer than TEXT_BYTES_MAX, a value outside its closed set, a number outside its range, a
    window that is not within an hour.
    """
    if not 1 <= batch.rows <= ROWS_MAX:
        raise SchemaError(f"{batch.rows} rows in a batch, allowed are 1 to {ROWS_MAX}")
    numbers_of: dict[str, int] = {batch.node: 0}
    columns: list[bytes] = []
    for name, column_id in _TEXT_IDS.items():
        values = batch.text[name]
        _check_closed(name, values)
        number = numbers_of.setdefault
        columns.append(_pack(column_id, [number(text, len(numbers_of)) for text in values]))
    for name, column_id in _NUMBER_IDS.items():
        _check_range(name, batch.numbers[name])
        columns.append(_pack(column_id, batch.numbers[name]))
    if batch.incarnation:
        _check_range("incarnation", (batch.incarnation,))
        columns.append(_pack(_INCARNATION_ID, (batch.incarnation,)))
    _check_windows(batch)
    _check_range("epoch", (batch.epoch,))
    _check_range("seq", (batch.first_seq, batch.first_seq + batch.rows))
    _check_range("emitted_at_us", (batch.emitted_at_us,))
    header = _HEADER.pack(0, batch.epoch, batch.first_seq, batch.emitted_at_us)
    rest = b"".join((*map(_pack_text, numbers_of), header, *columns))
    fixed = _FIXED.pack(MAGIC, SCHEMA_VERSION, len(columns), batch.rows, len(numbers_of))
    return b"".join((fixed, _CHECKSUM.pack(zlib.crc32(rest, zlib.crc32(fixed))), rest))


def decode(body: bytes) -> Batch:
    """The batch in a message body.

    Raises SchemaError, and nothing else, for bytes that `encode` did not make.
    """
    if len(body) < _FRONT_SIZE:
        raise SchemaError(f"{len(body)} bytes are too short for metering records")
    magic, version, column_count, rows, string_count = _FIXED.unpack_from(body)
    if magic != MAGIC:
        raise SchemaError("these are not metering records")
    if version != SCHEMA_VERSION:
        raise SchemaError(f"metering records of version {version}, known is {SCHEMA_VERSION}")
    (checksum,) = _CHECKSUM.unpack_from(body, _FIXED.size)
    view = memoryview(body)
    if zlib.crc32(view[_FRONT_SIZE:], zlib.crc32(view[: _FIXED.size])) != checksum:
        raise SchemaError("metering records with a wrong checksum")
    if not 1 <= rows <= ROWS_MAX:
        raise SchemaError(f"{rows} rows in a batch, allowed are 1 to {ROWS_MAX}")
    try:
        return _decode_checked(body, column_count, rows, string_count)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise SchemaError(f"malformed metering records: {error}") from error


def _decode_checked(body: bytes, column_count: int, rows: int, string_count: int) -> Batch:
    position = _FRONT_SIZE
    strings: list[str] = []
    for _ in range(string_count):
        end = position + 1 + body[position]
        if end > len(body):
            raise SchemaError("a string runs past the end")
        strings.append(body[position + 1 : end].decode())
        position = end
    node, epoch, first_seq, emitted_at_us = _HEADER.unpack_from(body, position)
    position += _HEADER.size
    text: dict[str, Sequence[str]] = {}
    numbers: dict[str, Sequence[int]] = {}
    incarnation = 0
    for _ in range(column_count):
        column_id, values, position = _unpack(body, position, rows)
        if column_id in _TEXT_NAMES:
            if min(values) < 0:
                raise SchemaError("a string has a negative number")
            name = _TEXT_NAMES[column_id]
            text[name] = [strings[value] for value in values]
            _check_closed(name, text[name])
        elif column_id in _NUMBER_NAMES:
            name = _NUMBER_NAMES[column_id]
            _check_range(name, values)
            numbers[name] = values
        elif column_id == _INCARNATION_ID:
            _check_range("incarnation", values)
            incarnation = values[0]
    if position != len(body):
        raise SchemaError("bytes are left behind the last column")
    missing = (set(TEXT_COLUMNS) - set(text)) | (set(NUMBER_COLUMNS) - set(numbers))
    if missing:
        raise SchemaError(f"columns are missing: {', '.join(sorted(missing))}")
    _check_range("epoch", (epoch,))
    _check_range("seq", (first_seq, first_seq + rows))
    _check_range("emitted_at_us", (emitted_at_us,))
    header = (strings[node], epoch, first_seq, emitted_at_us, rows)
    batch = Batch(*header, text, numbers, incarnation)
    _check_windows(batch)
    return batch


def _pack_text(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > TEXT_BYTES_MAX:
        raise SchemaError(f"a text of {len(raw)} bytes, allowed are {TEXT_BYTES_MAX}")
    return bytes((len(raw),)) + raw


def _pack(column_id: int, values: Sequence[int]) -> bytes:
    """One column in its shortest form."""
    low, high = min(values), max(values)
    if low == high:
        return _COLUMN.pack(column_id, 0) + _CONSTANT.pack(low)
    width = 8
    for candidate in (1, 2, 4):
        bound = 1 << (8 * candidate - 1)
        if -bound <= low and high < bound:
            width = candidate
            break
    packed = struct.pack(f"<{len(values)}{_FORMS[width]}", *values)
    return _COLUMN.pack(column_id, width) + packed


def _unpack(body: bytes, position: int, rows: int) -> tuple[int, Sequence[int], int]:
    """(column id, its values, where the next column begins)."""
    column_id, form = _COLUMN.unpack_from(body, position)
    position += _COLUMN.size
    if form == 0:
        (value,) = _CONSTANT.unpack_from(body, position)
        return column_id, (value,) * rows, position + _CONSTANT.size
    if form not in _FORMS:
        raise SchemaError(f"a column of the unknown form {form}")
    values = struct.unpack_from(f"<{rows}{_FORMS[form]}", body, position)
    return column_id, values, position + rows * form


def _check_closed(name: str, values: Iterable[str]) -> None:
    allowed = CLOSED_COLUMNS.get(name)
    if allowed is not None and not allowed.issuperset(values):
        unknown = sorted(set(values) - allowed)
        raise SchemaError(f"unknown {name}: {', '.join(unknown)}")


def _check_windows(batch: Batch) -> None:
    """A bill goes by the hour of a window's start, so no window may reach into the next hour."""
    starts, ends = batch.numbers["window_start_us"], batch.numbers["window_end_us"]
    for start_us, end_us in set(zip(starts, ends, strict=True)):
        if not start_us < end_us <= start_us - start_us % HOUR_US + HOUR_US:
            raise SchemaError(f"a window from {start_us} to {end_us} us is not within an hour")


def _check_range(name: str, values: Sequence[int]) -> None:
    low = -1 if name == "raft_group" else 0
    if min(values) < low or max(values) > NUMBER_MAX:
        raise SchemaError(f"{name} is outside its range {low} to {NUMBER_MAX}")
