from __future__ import annotations

import random

import pytest

from kernel.raft import message_wire as wire
from kernel.raft import messages
from kernel.raft.messages import Entry, Membership, RaftMessage, Snapshot


def flat(group: int, message: RaftMessage) -> bytes:
    return b"".join(wire.encode(group, message))


def same(one: RaftMessage, other: RaftMessage) -> bool:
    plain = set(RaftMessage.__slots__) - {"entries"}
    rows = [[(e.term, e.index, e.kind, e.body) for e in each.entries] for each in (one, other)]
    return rows[0] == rows[1] and all(getattr(one, at) == getattr(other, at) for at in plain)


EXAMPLES = [
    RaftMessage(messages.HEARTBEAT, 1, 2, 7, commit=9, context=b"read 5", stamp=44),
    RaftMessage(messages.APPEND_ANSWER, 2, 1, 7, 3, 12, reject=True, hint=11),
    RaftMessage(messages.VOTE, 3, 1, 8, 7, 100, forced=True),
    RaftMessage(
        messages.APPEND,
        1,
        3,
        8,
        7,
        100,
        99,
        [Entry(8, 101, messages.EMPTY, b""), Entry(8, 102, messages.NORMAL, bytes(5_000))],
    ),
    RaftMessage(
        messages.SNAPSHOT,
        1,
        4,
        8,
        snapshot=Snapshot(90, 7, Membership((1, 2), (2, 3), (4,), (3,), True), "0001/90.snap"),
    ),
]


def test_messages_arrive_as_they_were_sent_many_in_one_payload() -> None:
    payload = b"".join(flat(at, each) for at, each in enumerate(EXAMPLES))
    got = list(wire.decode(payload))
    assert [group for group, _ in got] == list(range(len(EXAMPLES)))
    assert all(same(one, other) for one, (_, other) in zip(EXAMPLES, got, strict=True))


def test_a_body_that_was_changed_on_its_way_is_not_taken() -> None:
    payload = bytearray(flat(1, EXAMPLES[3]))
    payload[-1] ^= 1
    with pytest.raises(wire.WireError, match="entry 102 is damaged"):
        list(wire.decode(bytes(payload)))


def test_garbage_raises_wire_errors_only() -> None:
    chance = random.Random(3)
    good = b"".join(flat(2, each) for each in EXAMPLES)
    refused = 0
    for _ in range(20_000):
        data = bytearray(good[: chance.randrange(1, len(good) + 1)])
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            list(wire.decode(bytes(data)))
        except wire.WireError:
            refused += 1
    assert refused > 10_000
