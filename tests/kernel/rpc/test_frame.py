from __future__ import annotations

import random

import pytest

from kernel.rpc.frame import (
    FRAGMENT_BYTES,
    HEAD,
    MESSAGE_BYTES_MAX,
    MORE,
    Frame,
    FrameReader,
    RpcError,
    RpcFrameKind,
    encode,
)


def wire(kind: int, parts: list[bytes], *, control: bool = False) -> list[bytes]:
    """Each frame as bytes."""
    return [b"".join(each) for each in encode(kind, 3, 9, parts, control=control)]


@pytest.mark.parametrize("chunk", [1, 7, 4_096, 1 << 30])
def test_messages_arrive_whole_however_the_bytes_are_cut(chunk: int) -> None:
    bodies = [b"", b"x", b"y" * 1_000, b"z" * (2 * FRAGMENT_BYTES + 5) if chunk > 7 else b"z" * 50]
    data = b"".join(b"".join(wire(RpcFrameKind.CALL, [body[:10], body[10:]])) for body in bodies)
    reader = FrameReader()
    got = [
        frame for at in range(0, len(data), chunk) for frame in reader.feed(data[at : at + chunk])
    ]
    assert got == [Frame(RpcFrameKind.CALL, 3, 9, body) for body in bodies]


def test_a_part_that_needs_no_cut_is_handed_on_uncopied() -> None:
    body = b"b" * 1_000
    (buffers,) = encode(RpcFrameKind.CAST, 1, 0, [b"head", body], control=False)
    assert buffers[2] is body


def test_control_frames_stand_between_the_fragments_of_a_large_message() -> None:
    large = wire(RpcFrameKind.CALL, [b"l" * (3 * FRAGMENT_BYTES)])
    assert len(large) == 3
    (small,) = wire(RpcFrameKind.CAST, [b"heartbeat"], control=True)
    reader = FrameReader()
    got = [
        frame.payload[:9] for data in (large[0], small, *large[1:]) for frame in reader.feed(data)
    ]
    assert got == [b"heartbeat", b"l" * 9]


def test_every_fragment_but_the_last_is_full_and_no_byte_is_lost() -> None:
    chance = random.Random(5)
    parts = [chance.randbytes(chance.randrange(1, 200_000)) for _ in range(20)]
    frames = wire(RpcFrameKind.CALL, parts)
    assert {len(each) - HEAD.size for each in frames[:-1]} == {FRAGMENT_BYTES}
    (got,) = list(FrameReader().feed(b"".join(frames)))
    assert got.payload == b"".join(parts)


def test_a_message_over_the_limit_is_refused_at_both_ends() -> None:
    with pytest.raises(ValueError, match="at most"):
        list(encode(RpcFrameKind.CALL, 1, 1, [bytes(MESSAGE_BYTES_MAX + 1)], control=False))
    reader = FrameReader(bytes_max=1_000)
    with pytest.raises(RpcError, match="more than 1000 bytes"):
        list(reader.feed(wire(RpcFrameKind.HELLO, [bytes(1_001)])[0]))
    reader = FrameReader(bytes_max=FRAGMENT_BYTES)
    with pytest.raises(RpcError, match="more than"):
        list(reader.feed(b"".join(wire(RpcFrameKind.CALL, [bytes(3 * FRAGMENT_BYTES)]))))


@pytest.mark.parametrize("length", [1_001, FRAGMENT_BYTES])
def test_a_message_over_the_limit_is_refused_before_it_has_come(length: int) -> None:
    with pytest.raises(RpcError, match="more than 1000 bytes"):
        list(FrameReader(bytes_max=1_000).feed(HEAD.pack(length, RpcFrameKind.HELLO, 0, 0, 0)))


@pytest.mark.parametrize("length", [0, 1, FRAGMENT_BYTES - 1])
def test_a_fragment_that_is_not_full_is_none_so_that_there_are_only_so_many(length: int) -> None:
    with pytest.raises(RpcError, match="not the last"):
        list(FrameReader().feed(HEAD.pack(length, RpcFrameKind.CALL, MORE, 3, 9)))


def test_garbage_ends_in_rpc_errors_only() -> None:
    chance = random.Random(11)
    good = b"".join(wire(RpcFrameKind.CALL, [b"body" * 20]))
    refused = 0
    for _ in range(20_000):
        data = bytearray(good * 2)
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            list(FrameReader(4_096).feed(bytes(data)))
        except RpcError:
            refused += 1
    assert refused > 1_000
