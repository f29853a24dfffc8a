"""Envelopes: scanning chunks and encoding contents."""

from __future__ import annotations

import pamqp.body
import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.codec import frames
from adapters.amqp.codec.frames import HEARTBEAT, encode_content, scan
from adapters.amqp.errors import FRAME_ERROR, AmqpError


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return frames.HEAD.pack(kind, channel, len(payload)) + payload + frames.END


_FRAMES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(0, 65_535), st.binary(max_size=40)),
    max_size=6,
)


@given(_FRAMES, st.integers(0, 30))
def test_scan_finds_the_complete_frames_and_leaves_the_rest(
    wanted: list[tuple[int, int, bytes]], cut: int
) -> None:
    data = b"".join(_frame(*each) for each in wanted)
    chunk = data[: max(len(data) - cut, 0)]
    found = [(kind, channel, chunk[start:end]) for kind, channel, start, end in scan(chunk, 4096)]
    whole = 0
    length = 0
    for _, _, payload in wanted:
        length += len(payload) + 8
        if length <= len(chunk):
            whole += 1
    assert found == wanted[:whole]


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x00\x01\x00\x00\x00\x01Z\xcf",
        b"\x04\x00\x01\x00\x00\x00\x00\xce",
        b"\x01\x00\x01\x00\x00\x10\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["wrong end", "unknown type", "over frame_max", "http", "tls hello"],
)
def test_a_broken_envelope_is_a_frame_error(data: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        list(scan(data, 4096))
    assert caught.value.code == FRAME_ERROR
    assert caught.value.hard


def test_a_frame_of_exactly_frame_max_is_taken() -> None:
    data = _frame(3, 1, bytes(4096 - 8))
    assert [frame.end - frame.start for frame in scan(data, 4096)] == [4088]


def test_a_payload_of_frame_max_is_taken_from_clients_that_do_not_count_the_envelope() -> None:
    """amqpstorm, aiorabbit and aioamqp cut bodies so."""
    data = _frame(3, 1, bytes(4096))
    assert [frame.end - frame.start for frame in scan(data, 4096)] == [4096]


def test_a_heartbeat_is_eight_octets() -> None:
    assert HEARTBEAT == b"\x08\x00\x00\x00\x00\x00\x00\xce"


@pytest.mark.parametrize("body_bytes", [0, 1, 4087, 4088, 4089, 9000])
def test_pamqp_reads_the_contents_we_write(body_bytes: int) -> None:
    body = bytes(range(256)) * 36
    body = body[:body_bytes]
    data = b"".join(encode_content(7, b"\x10\x00\x02", body, 4096))
    consumed, channel, header = pamqp.frame.unmarshal(data)
    assert isinstance(header, pamqp.header.ContentHeader)
    assert (channel, header.body_size, header.properties.delivery_mode) == (7, body_bytes, 2)
    received = b""
    count = 0
    while consumed < len(data):
        length, channel, part = pamqp.frame.unmarshal(data[consumed:])
        assert isinstance(part, pamqp.body.ContentBody)
        assert length <= 4096
        received += part.value or b""
        consumed += length
        count += 1
    assert received == body
    assert count == -(-body_bytes // 4088)
