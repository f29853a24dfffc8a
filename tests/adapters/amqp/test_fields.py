"""Field tables: every type, order, duplicates and limits, and pamqp as a second opinion."""

from __future__ import annotations

import struct

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.codec.fields import (
    NESTING_MAX,
    Decimal,
    Field,
    Table,
    check_table,
    decode_table,
    encode_table,
    field_of,
    integer_of,
    text_of,
)
from adapters.amqp.errors import SYNTAX_ERROR, AmqpError


def _integers(tag: str, bits: int, *, signed: bool) -> st.SearchStrategy[Field]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.builds(Field, st.just(tag), st.integers(low, high))


_SCALARS = st.one_of(
    st.builds(Field, st.just("t"), st.booleans()),
    _integers("b", 8, signed=True),
    _integers("B", 8, signed=False),
    _integers("s", 16, signed=True),
    _integers("u", 16, signed=False),
    _integers("I", 32, signed=True),
    _integers("i", 32, signed=False),
    _integers("l", 64, signed=True),
    _integers("L", 64, signed=False),
    _integers("T", 64, signed=False),
    st.builds(Field, st.just("f"), st.floats(width=32, allow_nan=False)),
    st.builds(Field, st.just("d"), st.floats(allow_nan=False)),
    st.builds(
        Field,
        st.just("D"),
        st.builds(Decimal, st.integers(0, 255), st.integers(0, 2**32 - 1)),
    ),
    st.builds(Field, st.sampled_from("Sx"), st.binary(max_size=40)),
    st.builds(Field, st.just("V"), st.none()),
)
_NAMES = st.text(max_size=20).filter(lambda name: len(name.encode()) < 256)


def _tables(fields: st.SearchStrategy[Field]) -> st.SearchStrategy[Table]:
    return st.lists(st.tuples(_NAMES, fields), max_size=5).map(lambda pairs: Table(tuple(pairs)))


_FIELDS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(Field, st.just("F"), _tables(inner)),
        st.builds(Field, st.just("A"), st.lists(inner, max_size=4).map(tuple)),
    ),
    max_leaves=12,
)


@given(_tables(_FIELDS))
def test_a_table_of_any_types_survives_the_round_trip_byte_for_byte(table: Table) -> None:
    encoded = encode_table(table)
    decoded, end = decode_table(encoded, 0, len(encoded))
    assert end == len(encoded)
    assert decoded == table
    assert encode_table(decoded) == encoded
    assert check_table(encoded, 0, len(encoded)) == end


@given(_tables(_FIELDS), st.data())
def test_checking_and_decoding_agree_on_what_is_malformed(
    table: Table, data: st.DataObject
) -> None:
    encoded = bytearray(encode_table(table))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded)

    def outcome(walk: object) -> object:
        try:
            result = walk(damaged, 0, len(damaged))  # type: ignore[operator]
        except AmqpError as error:
            return error.explanation
        return result[1] if isinstance(result, tuple) else result

    assert outcome(decode_table) == outcome(check_table)


@given(
    st.dictionaries(
        st.text("abcxyz-", min_size=1, max_size=12),
        st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=30), st.none()),
        max_size=6,
    )
)
def test_pamqp_reads_plain_tables_as_we_write_them(values: dict[str, object]) -> None:
    encoded = encode_table(Table.of(values))  # type: ignore[arg-type]
    _, decoded = pamqp.decode.field_table(encoded)
    assert decoded == values


@given(
    st.dictionaries(
        st.text("abcxyz-", min_size=1, max_size=12),
        st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=30)),
        max_size=6,
    )
)
def test_we_read_plain_tables_as_pamqp_writes_them(values: dict[str, object]) -> None:
    encoded = pamqp.encode.field_table(values)  # type: ignore[arg-type]
    table, _ = decode_table(encoded, 0, len(encoded))
    for name, value in values.items():
        field = table.get(name)
        assert field is not None
        if isinstance(value, str):
            assert text_of(field) == value
        elif isinstance(value, bool):
            assert field == Field("t", value)
        else:
            assert integer_of(field) == value


def test_order_and_duplicate_names_are_kept_and_the_first_counts() -> None:
    table = Table((("z", Field("I", 1)), ("a", Field("I", 2)), ("z", Field("I", 3))))
    decoded, _ = decode_table(encode_table(table), 0, 100)
    assert decoded.names() == ["z", "a", "z"]
    assert integer_of(decoded.get("z")) == 1


def test_a_name_that_is_not_utf8_survives() -> None:
    encoded = b"\x00\x00\x00\x04\x02\xff\xfeV"
    table, _ = decode_table(encoded, 0, len(encoded))
    assert encode_table(table) == encoded


def test_plain_values_get_rabbitmqs_types() -> None:
    tags = {
        name: field_of(value).tag
        for name, value in {
            "bool": True,
            "int": 1,
            "float": 0.1,
            "text": "x",
            "bytes": b"x",
            "none": None,
            "map": {"a": 1},
            "list": [1],
        }.items()
    }
    assert tags == {
        "bool": "t",
        "int": "l",
        "float": "d",
        "text": "S",
        "bytes": "S",
        "none": "V",
        "map": "F",
        "list": "A",
    }


def test_nesting_is_refused_beyond_the_limit() -> None:
    table = Table()
    for _ in range(NESTING_MAX):
        table = Table((("n", Field("F", table)),))
    encoded = encode_table(table)
    assert decode_table(encoded, 0, len(encoded))[0] == table
    encoded = encode_table(Table((("n", Field("F", table)),)))
    for walk in (decode_table, check_table):
        with pytest.raises(AmqpError) as caught:
            walk(encoded, 0, len(encoded))
        assert caught.value.code == SYNTAX_ERROR


def test_thousands_of_nested_arrays_do_not_exhaust_the_stack() -> None:
    inner = b""
    for _ in range(3_000):
        inner = b"A" + struct.pack(">I", len(inner)) + inner
    encoded = struct.pack(">I", len(inner) + 2) + b"\x01n" + inner
    for walk in (decode_table, check_table):
        with pytest.raises(AmqpError):
            walk(encoded, 0, len(encoded))


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x05\x01a",
        b"\x00\x00\x00\x02\x05a",
        b"\x00\x00\x00\x02\x01a",
        b"\x00\x00\x00\x03\x01aI",
        b"\x00\x00\x00\x03\x01at",
        b"\x00\x00\x00\x03\x01aZ",
        b"\x00\x00\x00\x07\x01aS\x00\x00\x00\x09",
        b"\x00\x00\x00\x07\x01aA\x00\x00\x00\x09",
        b"\x00\x00\x00\x05\x01aD\x00\x00",
    ],
)
def test_cut_off_and_unknown_fields_are_syntax_errors(encoded: bytes) -> None:
    for walk in (decode_table, check_table):
        with pytest.raises(AmqpError) as caught:
            walk(encoded, 0, len(encoded))
        assert caught.value.code == SYNTAX_ERROR
