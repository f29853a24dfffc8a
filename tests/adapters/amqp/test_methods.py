"""The method codec: every method both ways, against pamqp where pamqp knows the method."""

from __future__ import annotations

import dataclasses

import pamqp.commands
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Field, Table, field_of
from adapters.amqp.codec.method_base import Method
from adapters.amqp.codec.methods import decode_method, encode_method, short_string
from adapters.amqp.errors import COMMAND_INVALID, FRAME_ERROR, AmqpError

_DOMAINS: dict[str, st.SearchStrategy[object]] = {
    "Octet": st.integers(0, 255),
    "Short": st.integers(0, 2**16 - 1),
    "Long": st.integers(0, 2**32 - 1),
    "LongLong": st.integers(0, 2**64 - 1),
    "ShortStr": st.text(max_size=60).filter(lambda text: len(text.encode()) < 256),
    "LongStr": st.binary(max_size=80),
    "Bit": st.booleans(),
    "Table": st.dictionaries(st.text("ab-", max_size=4), st.integers(0, 9), max_size=3).map(
        Table.of
    ),
}


def _methods() -> st.SearchStrategy[Method]:
    return st.sampled_from(list(spec.METHOD_TABLE.values())).flatmap(
        lambda kind: st.builds(kind, *(_DOMAINS[domain] for _, domain in kind.layout))
    )


def _decode(frame: bytes) -> Method:
    return decode_method(frame, 7, len(frame) - 1)


@given(_methods(), st.integers(0, 2**16 - 1))
def test_every_method_survives_the_round_trip(method: Method, channel: int) -> None:
    frame = encode_method(channel, method)
    assert int.from_bytes(frame[1:3], "big") == channel
    assert int.from_bytes(frame[3:7], "big") == len(frame) - 8
    assert _decode(frame) == method


def test_the_table_holds_the_methods_of_the_specification() -> None:
    assert len(spec.METHOD_TABLE) == 66
    for key, kind in spec.METHOD_TABLE.items():
        assert key == kind.class_id << 16 | kind.method_id
        assert set(dict(kind.layout).values()) <= set(_DOMAINS)


_PAMQP_LACKS = {
    # No class 30 at all.
    spec.AccessRequest,
    spec.AccessRequestOk,
    # Insists on "0" in a reserved argument, which is empty by the specification.
    spec.ChannelOpen,
    spec.ChannelOpenOk,
    # Warns that it is deprecated, and a warning is an error here.
    spec.BasicRecoverAsync,
}


def _pamqp_class(kind: type[Method]) -> type | None:
    return pamqp.commands.INDEX_MAPPING.get(kind.key)


def _safe_value(domain: str, name: str) -> object:
    return {
        "Octet": 9,
        "Short": 0 if name == "ticket" else 513,
        "Long": 0 if name == "prefetch_size" else 70_000,
        "LongLong": 2**40 + 5,
        "ShortStr": "direct"
        if name == "type"
        else ("" if name.startswith("reserved") else "na-me"),
        "LongStr": b"" if name.startswith("reserved") else b"PLAIN AMQPLAIN",
        "Bit": not name.startswith(("reserved", "immediate")),
        "Table": Table((("k", Field("S", b"v")), ("n", Field("I", 7)))),
    }[domain]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in spec.METHOD_TABLE.values() if kind not in _PAMQP_LACKS],
    ids=lambda kind: kind.wire_name,
)
def test_pamqp_reads_the_same_arguments(kind: type[Method]) -> None:
    oracle = _pamqp_class(kind)
    assert oracle is not None, f"pamqp does not know {kind.wire_name}"
    method = kind(*(_safe_value(domain, name) for name, domain in kind.layout))
    _, channel, decoded = pamqp.frame.unmarshal(encode_method(3, method))
    assert isinstance(decoded, oracle)
    assert channel == 3
    theirs = [decoded[attribute] for attribute in oracle.attributes()]
    ours = [getattr(method, name) for name, _ in kind.layout]
    assert [_plain(value) for value in theirs] == [_plain(value) for value in ours]
    # And back: what pamqp writes, we read as the same method. It sorts and retypes table values.
    again = _decode(pamqp.frame.marshal(decoded, 3))
    for name, domain in kind.layout:
        if domain != "Table":
            assert getattr(again, name) == getattr(method, name)


def _plain(value: object) -> object:
    if isinstance(value, Table):
        return {name: _plain(field.value) for name, field in value.entries}
    return value.decode() if isinstance(value, bytes) else value


def test_nine_bits_in_a_run_take_two_octets() -> None:
    method = spec.QueueDeclare(0, "q", durable=True, nowait=True)
    frame = encode_method(1, method)
    assert frame[15:16] == b"\x12"  # passive 1, durable 2, exclusive 4, auto-delete 8, nowait 16


def test_an_unknown_method_is_command_invalid_and_named() -> None:
    with pytest.raises(AmqpError) as caught:
        decode_method(b"\x00\x3c\x00\x63", 0, 4)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (
        COMMAND_INVALID,
        60,
        99,
    )
    assert caught.value.hard


@pytest.mark.parametrize("kind", list(spec.METHOD_TABLE.values()), ids=lambda kind: kind.wire_name)
def test_arguments_cut_anywhere_or_too_long_are_frame_errors(kind: type[Method]) -> None:
    method = kind(*(_safe_value(domain, name) for name, domain in kind.layout))
    payload = encode_method(0, method)[7:-1]
    for end in range(4, len(payload)):
        with pytest.raises(AmqpError) as caught:
            decode_method(payload[:end], 0, end)
        assert caught.value.hard
        assert (caught.value.class_id, caught.value.method_id) == (kind.class_id, kind.method_id)
    with pytest.raises(AmqpError) as caught:
        decode_method(payload + b"\0", 0, len(payload) + 1)
    assert caught.value.code == FRAME_ERROR


def test_a_frame_without_room_for_ids_is_a_frame_error() -> None:
    with pytest.raises(AmqpError) as caught:
        decode_method(b"\x00\x3c\x00", 0, 3)
    assert caught.value.code == FRAME_ERROR


def test_a_routing_key_of_any_bytes_survives() -> None:
    frame = encode_method(
        1, spec.BasicPublish(0, "e", b"\xff\x00\x80".decode("utf-8", "surrogateescape"))
    )
    assert encode_method(1, _decode(frame)) == frame


def test_a_short_string_over_255_bytes_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="256"):
        short_string("x" * 256)


def test_methods_are_values() -> None:
    assert dataclasses.is_dataclass(spec.BasicAck)
    assert spec.BasicAck(1, multiple=True) == spec.BasicAck(1, True)
    assert field_of(1) == Field("l", 1)
