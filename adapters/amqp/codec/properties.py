"""The property block of a message: kept as the bytes that came, read only where it matters.

It stands in a header frame behind class, weight and body size (AMQP 0-9-1 section 2.3.5.2)::

    flags:u16 | the properties whose flag is set, highest bit first

    15 content-type s   14 content-encoding s   13 headers t    12 delivery-mode o  11 priority o
    10 correlation-id s  9 reply-to s            8 expiration s   7 message-id s     6 timestamp l
     5 type s            4 user-id s             3 app-id s       2 cluster-id s
     1 and 0 must be clear (0 would announce more flags; no further property exists)

    s short string   t table   o octet   l u64

Rules:

1. A publish is checked once, by `inspect`: its whole structure, because what we store is handed
   to consumers unseen. `inspect` also finds what routing and storing need (`Traits`).
2. To change a block, `split` it into its raw properties, replace some, and `join` them: what is not
   touched stays byte for byte.
3. A malformed block raises `AmqpError` 502 SYNTAX_ERROR, a bad value 406 PRECONDITION_FAILED.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from adapters.amqp.codec.fields import (
    EMPTY_TABLE,
    Field,
    Table,
    check_table,
    decode_table,
    encode_entry,
    encode_table,
    integer_of,
)
from adapters.amqp.errors import PRECONDITION_FAILED, SYNTAX_ERROR, AmqpError
from adapters.amqp.names import DIRECT_REPLY_TO

# Places of the properties in what `split` returns.
CONTENT_TYPE: Final = 0
CONTENT_ENCODING: Final = 1
HEADERS: Final = 2
DELIVERY_MODE: Final = 3
PRIORITY: Final = 4
CORRELATION_ID: Final = 5
REPLY_TO: Final = 6
EXPIRATION: Final = 7
MESSAGE_ID: Final = 8
TIMESTAMP: Final = 9
TYPE: Final = 10
USER_ID: Final = 11
APP_ID: Final = 12
CLUSTER_ID: Final = 13
PROPERTY_COUNT: Final = 14

NAMES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


class _Kind(Enum):
    """How a property is read."""

    PLAIN = auto()
    """A short string that means nothing to us."""
    NOTED = auto()
    """A short string that does."""
    TABLE = auto()
    OCTET = auto()
    NUMBER = auto()


_PLAIN, _NOTED, _TABLE, _OCTET = _Kind.PLAIN, _Kind.NOTED, _Kind.TABLE, _Kind.OCTET
_KINDS: Final = {
    **dict.fromkeys(range(PROPERTY_COUNT), _PLAIN),
    **dict.fromkeys((REPLY_TO, EXPIRATION, MESSAGE_ID, USER_ID), _NOTED),
    **dict.fromkeys((DELIVERY_MODE, PRIORITY), _OCTET),
    HEADERS: _TABLE,
    TIMESTAMP: _Kind.NUMBER,
}
_FLAGS: Final = tuple(1 << 15 - place for place in range(PROPERTY_COUNT))
_UNUSED_FLAGS: Final = 0b11
_LAYOUTS: Final[dict[int, tuple[tuple[int, _Kind], ...]]] = {}
_PERSISTENT: Final = 2
TTL_MS_MAX: Final = 315_360_000_000
"""Largest expiration RabbitMQ takes (ten years)."""
_TTL_DIGITS_MAX: Final = 20
"""Longer ones are not looked at: leading zeros are no reason to refuse, a megabyte of them is."""
DELAY_MS_MAX: Final = 40 * 24 * 3600 * 1000
"""Largest x-delay: how far ahead the kernel delivers."""

_DIRECT_REPLY_TO: Final = DIRECT_REPLY_TO.encode()

HEADER_DELAY: Final = "x-delay"
HEADER_ORDERING_KEY: Final = "x-message-group-id"
HEADER_TAG: Final = "weir.tag"
HEADER_KEYS: Final = "weir.keys"
HEADER_HIDDEN_COPIES: Final = "BCC"
HEADERS_COPIES: Final = ("CC", HEADER_HIDDEN_COPIES)
COPIES_MAX: Final = 128
"""Further routing keys of a message: each is routed and checked by itself, in one turn."""
_MARKS: Final = (b"x-", b"weir.", b"CC")
"""A block that contains none of these has no header that `Traits` needs: its table stays raw."""


class Traits(NamedTuple):
    """What routing and storing need to know of a property block."""

    persistent: bool
    priority: int
    ttl_ms: int | None
    """`expiration`; None if there is none."""
    delay_ms: int
    user_id: bytes | None
    message_id: bytes | None
    wants_reply: bool
    """It asks for a direct reply."""
    headers: Table
    """Decoded only if one of the headers that mean something to us may be there."""


def inspect(block: bytes) -> Traits:
    """Check a block from end to end and return its traits. Raises AmqpError 502 or 406."""
    size = len(block)
    flags, at = _flags(block)
    persistent = False
    priority = 0
    ttl_ms: int | None = None
    user_id: bytes | None = None
    message_id: bytes | None = None
    wants_reply = False
    headers = EMPTY_TABLE
    try:
        for place, kind in _LAYOUTS.get(flags) or _layout(flags):
            if kind is _PLAIN:
                at += 1 + block[at]
                continue
            start = at
            if kind is _NOTED:
                at += 1 + block[at]
                if place == MESSAGE_ID:
                    message_id = block[start + 1 : at]
                elif place == EXPIRATION:
                    ttl_ms = _expiration(block[start + 1 : at])
                elif place == USER_ID:
                    user_id = block[start + 1 : at]
                elif block[start + 1 : at] == _DIRECT_REPLY_TO:
                    wants_reply = True
            elif kind is _OCTET:
                at += 1
                if place == PRIORITY:
                    priority = block[start]
                else:
                    persistent = block[start] == _PERSISTENT
            elif kind is _TABLE:
                at += 4 + int.from_bytes(block[at : at + 4], "big")
                headers = _interesting_headers(block, start, min(at, size))
            else:
                at += 8
    except IndexError:
        raise _cut_off() from None
    _check_end(at, size)
    delay_ms = _delay(headers) if headers.entries else 0
    return Traits(persistent, priority, ttl_ms, delay_ms, user_id, message_id, wants_reply, headers)


def _interesting_headers(block: bytes, start: int, end: int) -> Table:
    """The headers table if one may be in it that means something to us; else it is only checked."""
    for mark in _MARKS:
        if block.find(mark, start, end) >= 0:
            return decode_table(block, start, end)[0]
    check_table(block, start, end)
    return EMPTY_TABLE


def _expiration(digits: bytes) -> int:
    # isdigit() of bytes knows ASCII digits only, which is what we want.
    if not digits.isdigit() or len(digits) > _TTL_DIGITS_MAX or int(digits) > TTL_MS_MAX:
        text = digits.decode("utf-8", "replace")
        raise AmqpError(
            PRECONDITION_FAILED,
            f"invalid expiration '{text}': not a number of milliseconds up to {TTL_MS_MAX}",
        )
    return int(digits)


def _delay(headers: Table) -> int:
    field = headers.get(HEADER_DELAY)
    if field is None:
        return 0
    delay_ms = integer_of(field)
    if delay_ms is None or delay_ms > DELAY_MS_MAX:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"invalid x-delay header: not a number of milliseconds up to {DELAY_MS_MAX}",
        )
    # The delayed-message plugin delivers a negative delay at once.
    return max(delay_ms, 0)


def split(block: bytes) -> list[bytes | None]:
    """The 14 properties as raw bytes (length words included), None where the flag is clear.

    The inside of the headers table is not looked at. Raises AmqpError 502.
    """
    size = len(block)
    flags, at = _flags(block)
    fields: list[bytes | None] = [None] * PROPERTY_COUNT
    try:
        for place, kind in _LAYOUTS.get(flags) or _layout(flags):
            if kind is _PLAIN or kind is _NOTED:
                end = at + 1 + block[at]
            elif kind is _TABLE:
                end = at + 4 + int.from_bytes(block[at : at + 4], "big")
            else:
                end = at + (1 if kind is _OCTET else 8)
            fields[place] = block[at:end]
            at = end
    except IndexError:
        raise _cut_off() from None
    _check_end(at, size)
    return fields


def _flags(block: bytes) -> tuple[int, int]:
    """The flags of a block, and the offset behind them."""
    if len(block) < 2:
        raise AmqpError(SYNTAX_ERROR, "a property block without flags")
    flags = block[0] << 8 | block[1]
    if flags & _UNUSED_FLAGS:
        raise AmqpError(SYNTAX_ERROR, f"unknown property flags {flags:#06x}")
    return flags, 2


def _layout(flags: int) -> tuple[tuple[int, _Kind], ...]:
    """The properties that are there, in order; remembered, for there are 16,384 at most."""
    layout = tuple((place, _KINDS[place]) for place, flag in enumerate(_FLAGS) if flags & flag)
    _LAYOUTS[flags] = layout
    return layout


def _check_end(at: int, size: int) -> None:
    if at > size:
        raise _cut_off()
    if at < size:
        raise AmqpError(SYNTAX_ERROR, "octets behind the last property")


def join(fields: list[bytes | None]) -> bytes:
    """The inverse of `split`."""
    flags = 0
    parts: list[bytes] = []
    for flag, field in zip(_FLAGS, fields, strict=True):
        if field is not None:
            flags |= flag
            parts.append(field)
    return flags.to_bytes(2, "big") + b"".join(parts)


def headers_of(fields: list[bytes | None]) -> Table:
    """The headers table of a block that was split; empty if it has none. Raises AmqpError 502."""
    block = fields[HEADERS]
    return EMPTY_TABLE if block is None else decode_table(block, 0, len(block))[0]


def replace_headers(block: bytes, headers: dict[str, Field]) -> bytes:
    """`block` with the headers given put in place of those of these names; the rest stays."""
    fields = split(block)
    kept = [entry for entry in headers_of(fields).entries if entry[0] not in headers]
    body = b"".join(encode_entry(name, field) for name, field in (*kept, *headers.items()))
    fields[HEADERS] = len(body).to_bytes(4, "big") + body
    return join(fields)


def copies(headers: Table) -> tuple[str, ...]:
    """Further routing keys of a message: what CC and BCC hold, each once. Raises AmqpError 406.

    As in RabbitMQ, a header of another type is refused, an element of another one is ignored.
    """
    keys: dict[str, None] = {}
    for name in HEADERS_COPIES:
        field = headers.get(name)
        if field is None:
            continue
        if not isinstance(field.value, tuple):
            raise AmqpError(
                PRECONDITION_FAILED, f"invalid message: the header {name} is not an array"
            )
        for each in field.value:
            if each.tag == "S" and isinstance(each.value, bytes):
                keys[each.value.decode("utf-8", "surrogateescape")] = None
    if len(keys) > COPIES_MAX:
        raise AmqpError(
            PRECONDITION_FAILED, f"invalid message: CC and BCC have more than {COPIES_MAX} keys"
        )
    return tuple(keys)


def without_header(block: bytes, name: str) -> bytes:
    """`block` without the headers of that name; the rest stays byte for byte."""
    fields = split(block)
    kept = [entry for entry in headers_of(fields).entries if entry[0] != name]
    body = b"".join(encode_entry(each, field) for each, field in kept)
    fields[HEADERS] = len(body).to_bytes(4, "big") + body
    return join(fields)


def short_text(field: bytes | None) -> str | None:
    """The text of a short-string property as `split` gives it."""
    return None if field is None else field[1:].decode("utf-8", "surrogateescape")


def encode_headers(table: Table) -> bytes:
    """A headers property from a table."""
    return encode_table(table)


def _cut_off() -> AmqpError:
    return AmqpError(SYNTAX_ERROR, "a property is longer than its block")
