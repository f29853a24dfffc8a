"""100,000 damaged frames: nothing but `AmqpError` leaves the codec."""

from __future__ import annotations

import random

from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.fields import Field, Table
from adapters.amqp.codec.frames import encode_content, scan
from adapters.amqp.codec.methods import decode_method, encode_method
from adapters.amqp.errors import REPLY_NAMES, AmqpError
from tests.adapters.amqp.wire import short_field

FRAMES = 100_000
SEED = 20_261_121

_HEADERS = Table.of(
    {
        "text": "value",
        "x-delay": 5,
        "nested": {"list": [1, 2.5, None, True, {"deep": b"\xff"}]},
        "CC": ["a", "b"],
    }
)
_ARGUMENTS = Table((*_HEADERS.entries, ("time", Field("T", 1_700_000_000)), ("b", Field("b", -1))))


def _block() -> bytes:
    fields: list[bytes | None] = [short_field("text")] * properties.PROPERTY_COUNT
    fields[properties.HEADERS] = properties.encode_headers(_HEADERS)
    fields[properties.DELIVERY_MODE] = b"\x02"
    fields[properties.PRIORITY] = b"\x09"
    fields[properties.TIMESTAMP] = bytes(8)
    fields[properties.EXPIRATION] = short_field("60000")
    return properties.join(fields)


def _seeds() -> list[bytes]:
    return [
        encode_method(1, spec.QueueDeclare(0, "queue", durable=True, arguments=_ARGUMENTS)),
        encode_method(1, spec.ExchangeDeclare(0, "exchange", "topic", arguments=_ARGUMENTS)),
        encode_method(1, spec.QueueBind(0, "queue", "exchange", "a.*.b", arguments=_ARGUMENTS)),
        encode_method(1, spec.BasicConsume(0, "queue", "tag", arguments=_ARGUMENTS)),
        encode_method(1, spec.BasicPublish(0, "exchange", "a.b.c")),
        encode_method(1, spec.BasicAck(7, multiple=True)),
        encode_method(0, spec.ConnectionStartOk(_HEADERS, "PLAIN", b"\0guest\0guest", "en_US")),
        encode_method(0, spec.ConnectionTuneOk(100, 4096, 60)),
        b"".join(encode_content(1, _block(), b"body" * 8, 4096)),
    ]


def _damage(frame: bytes, choose: random.Random) -> bytes:
    damaged = bytearray(frame)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(damaged))
        match choose.randrange(5):
            case 0:
                damaged[at] = choose.randrange(256)
            case 1:
                damaged[at] ^= 1 << choose.randrange(8)
            case 2:
                del damaged[at : at + choose.randint(1, 6)]
            case 3:
                damaged[at:at] = choose.randbytes(choose.randint(1, 6))
            case 4:
                damaged[at : at + 4] = choose.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"))
        if not damaged:
            break
    return bytes(damaged)


def _read(data: bytes) -> None:
    for frame in scan(data, 4096):
        if frame.type == 1:
            method = decode_method(data, frame.start, frame.end)
            # What can be read can be written again and read the same.
            again = encode_method(frame.channel, method)
            assert type(decode_method(again, 7, len(again) - 1)) is type(method)
        elif frame.type == 2:
            block = data[frame.start + 12 : frame.end]
            properties.inspect(block)
            assert properties.join(properties.split(block)) == block


def test_only_amqp_errors_escape_from_damaged_frames() -> None:
    choose = random.Random(SEED)
    seeds = _seeds()
    refused = longest = 0
    codes: set[int] = set()
    for _ in range(FRAMES):
        try:
            _read(_damage(choose.choice(seeds), choose))
        except AmqpError as error:
            refused += 1
            codes.add(error.code)
            longest = max(longest, len(error.text.encode()))
    assert codes <= set(REPLY_NAMES)
    assert longest <= 255
    # Most damage must be noticed, or the fuzzer damages nothing that matters.
    assert refused > FRAMES // 3


def test_payloads_of_frames_damaged_inside_a_sound_envelope() -> None:
    choose = random.Random(SEED + 1)
    seeds = [frame[7:-1] for frame in _seeds()[:-1]]
    block = _block()
    codes: set[int] = set()
    for _ in range(FRAMES // 4):
        payload = _damage(choose.choice(seeds), choose)
        try:
            decode_method(payload, 0, len(payload))
        except AmqpError as error:
            codes.add(error.code)
        try:
            properties.inspect(_damage(block, choose))
        except AmqpError as error:
            codes.add(error.code)
    # Cut-off arguments, bad tables, unknown methods; and bad values of properties.
    assert codes == {501, 502, 503, 406}
