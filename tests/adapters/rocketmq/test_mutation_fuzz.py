"""Mutated SendMessage requests: whatever arrives, only errors of the protocol leave, and what the
short way takes for plain messages is what the generated code reads in the same bytes.
"""

from __future__ import annotations

import random
from dataclasses import replace

from google.protobuf.message import DecodeError

from adapters.rocketmq.codec.plain_sends import Splitter
from adapters.rocketmq.codec.stubs import parse_send_message, parse_system_properties
from adapters.rocketmq.errors import RocketmqError
from adapters.rocketmq.messages.stored import Drafts, split
from adapters.rocketmq.settings import RocketmqSettings
from kernel.api import message as messages
from tests.adapters.rocketmq.support import message
from tests.adapters.rocketmq.test_plain_sends import NOW_MS, TARGET, Batch, request, slots_of

MUTANTS = 100_000
"""Some seconds."""

SETTINGS = RocketmqSettings()


def seeds() -> list[bytes]:
    """Requests of all kinds: those that go the short way, in columns too, and those that do not."""
    alike = [
        message("t", b"%05d" % number, message_id=f"01AB{number:06}", message_type=1)
        for number in range(4)
    ]
    full = message("t", b"body", message_id="A1", message_type=1)
    full.user_properties["colour"] = "blue"
    full.system_properties.tag = "tag"
    full.system_properties.keys.append("key")
    grouped = message("t", b"b" * 200, message_id="A2", message_type=2)
    grouped.system_properties.message_group = "g"
    late = message("t", b"later", message_id="A3", message_type=3)
    late.system_properties.delivery_timestamp.seconds = NOW_MS // 1000 + 5
    named = message("topic-with-a-longer-name", b"\xff" * 20, message_id="A4", message_type=1)
    for each in (*alike, full, grouped, late, named):
        each.system_properties.born_timestamp.seconds = NOW_MS // 1000
        each.system_properties.born_host = "client@host"
    sent = ([alike[0]], alike, [full], [grouped], [late], [named], [alike[0], full], [])
    return [request(*each) for each in sent]


def mutated(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """One to three changes: octets, lengths that lie, pieces that are gone, doubled or foreign."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(changed))
        until = min(len(changed), at + chance.choice((1, 1, 2, 8, 60)))
        match chance.randrange(6):
            case 0:
                changed[at:until] = chance.randbytes(until - at)
            case 1:
                del changed[at:until]
            case 2:
                changed[at:at] = changed[at:until]
            case 3:
                begin = chance.randint(0, len(other))
                changed[at:until] = other[begin : begin + until - at]
            case 4:
                changed[at:until] = bytes((chance.choice((0x00, 0x7F, 0x80, 0xFF)),)) * (until - at)
            case _ if at < len(changed):
                changed[at] = (changed[at] + chance.choice((-1, 1))) & 0xFF
    return bytes(changed)


def careful(data: bytes) -> list[bytes] | None:
    """The slots that the long way makes of a request; None if it is refused."""
    try:
        sent = parse_send_message(data).messages
        if not sent:
            return None
        drafts = Drafts(sent[0].topic, TARGET, SETTINGS, NOW_MS)
        batch = Batch()
        return [b"".join(drafts.of(each, batch.uid())[0]) for each in sent]
    except (DecodeError, RocketmqError):
        return None


def read(slot: bytes) -> tuple[messages.Message, bytes, object]:
    """What a slot says: fields may have come in another than the shortest form."""
    stored = messages.decode(slot)
    rest, system = split(stored.native)
    return replace(stored, native=b""), rest, parse_system_properties(system)


def test_mutated_requests_are_read_alike_both_ways_or_refused() -> None:
    chance = random.Random(20261121)
    originals, splitter = seeds(), Splitter()
    short = refused = 0
    for _ in range(MUTANTS):
        data = mutated(chance, chance.choice(originals), chance.choice(originals))
        found = splitter.split(data)
        expected = careful(data)
        refused += expected is None
        if found is None:
            continue
        short += 1
        assert expected is not None, data
        assert list(map(read, slots_of(found))) == list(map(read, expected)), data
        assert parse_send_message(data).messages[0].topic.name == found.topic
    assert min(short, refused) > MUTANTS // 50
