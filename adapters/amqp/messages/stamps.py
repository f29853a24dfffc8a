"""Stamps: what a property block means for the header of a stored message, remembered.

Publishers send the same few property blocks over and over: the block, taken as bytes, is the key.
One object serves all connections of the adapter.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.amqp.codec import properties
from adapters.amqp.errors import PRECONDITION_FAILED, AmqpError
from adapters.amqp.limits import PROPERTY_BLOCK_BYTES_MAX, PROPERTY_BLOCKS_MAX
from adapters.amqp.origin import ORIGIN_BYTE
from kernel.api import message
from kernel.api.message import Ext, Flag

if TYPE_CHECKING:
    from adapters.amqp.codec.fields import Table

HEADER: Final = struct.Struct("<4sIIIQQQ32s")
"""`kernel.api.message.HEADER` with its beginning and end as the bytes that a `Stamp` holds: packing
eight fields instead of fifteen saves a third of the time. A test of stamps holds the two equal."""
_START: Final = struct.Struct("<BBBB")
_END: Final = struct.Struct("<QQQII")
_EXT_FIELD: Final = struct.Struct("<BI")
"""One field of an ext block, as `kernel.api.message.encode_ext` writes it: type and length."""

# Members of an enum cost a look-up of 0.2 us each; these are asked for per message.
_VERSION: Final = message.VERSION
_ORIGIN: Final = ORIGIN_BYTE
_PERSISTENT: Final = int(Flag.PERSISTENT)
_MESSAGE_ID: Final = int(Ext.MESSAGE_ID)
_ORDERING_KEY: Final = int(Ext.ORDERING_KEY)
_TAG: Final = int(Ext.TAG)
_KEYS: Final = int(Ext.KEYS)


class OfSender(NamedTuple):
    """What of a property block depends on who sends it, or where."""

    user_id: bytes | None
    wants_reply: bool
    """It asks for a direct reply: its block is not the one that is stored."""
    copies: tuple[str, ...]
    """Further routing keys."""
    block: bytes | None
    """What is stored of the block, if that is less: nobody is told of hidden copies."""


class Stamp(NamedTuple):
    """What a property block means for the header of a stored message."""

    start: bytes
    """Version, origin, priority and flags."""
    end: bytes
    """Everything behind the time of publishing: TTL, delay, hashes of ordering key and tag."""
    ext: bytes
    of_sender: OfSender | None


class Stamps:
    """Remembers what property blocks mean; most publishers send the same few over and over."""

    def __init__(self) -> None:
        self.known: dict[bytes, Stamp] = {}

    def of(self, block: bytes, user_ids: tuple[bytes, ...]) -> Stamp:
        """The meaning of a block from whoever may call itself one of `user_ids`.

        Raises AmqpError 502 for a malformed block, 406 for a bad value or another user-id.
        """
        stamp = self.known.get(block) or self._learn(block)
        user_id = None if stamp.of_sender is None else stamp.of_sender.user_id
        if user_id is not None and user_id not in user_ids:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"user_id property set to '{user_id.decode('utf-8', 'replace')}' but "
                f"authenticated user was '{user_ids[0].decode()}'",
            )
        return stamp

    def _learn(self, block: bytes) -> Stamp:
        traits = properties.inspect(block)
        persistent, priority, ttl_ms, delay_ms, user_id, message_id, wants_reply, headers = traits
        copies = properties.copies(headers) if headers.entries else ()
        of_sender = None
        if wants_reply or user_id is not None or _has_copies(headers):
            hidden = properties.HEADER_HIDDEN_COPIES
            is_less = headers.get(hidden) is not None
            kept = properties.without_header(block, hidden) if is_less else None
            of_sender = OfSender(user_id, wants_reply, copies, kept)
        start = _START.pack(_VERSION, _ORIGIN, priority, _PERSISTENT if persistent else 0)
        # In the header 0 means none.
        ttl_ms = 0 if ttl_ms is None else ttl_ms or message.TTL_AT_ONCE
        if headers.entries:
            fields = _ext(headers)
            if message_id:
                fields[_MESSAGE_ID] = message_id
            key, tag = fields.get(_ORDERING_KEY), fields.get(_TAG)
            key_hash = 0 if key is None else message.key_hash(key)
            tag_hash = 0 if tag is None else message.tag_hash(tag)
            end = _END.pack(ttl_ms, delay_ms, key_hash, tag_hash, 0)
            stamp = Stamp(start, end, message.encode_ext(fields), of_sender)
        else:
            ext = _EXT_FIELD.pack(_MESSAGE_ID, len(message_id)) + message_id if message_id else b""
            stamp = Stamp(start, _END.pack(ttl_ms, 0, 0, 0, 0), ext, of_sender)
        # A block with an id of its own does not come again.
        if not message_id and len(block) <= PROPERTY_BLOCK_BYTES_MAX:
            if len(self.known) >= PROPERTY_BLOCKS_MAX:
                self.known.clear()
            self.known[block] = stamp
        return stamp


def _has_copies(headers: Table) -> bool:
    return any(headers.get(name) is not None for name in properties.HEADERS_COPIES)


def _ext(headers: Table) -> dict[int, bytes]:
    """What headers say to the kernel."""
    found: dict[int, bytes] = {}
    for name, kind in (
        (properties.HEADER_ORDERING_KEY, _ORDERING_KEY),
        (properties.HEADER_TAG, _TAG),
        (properties.HEADER_KEYS, _KEYS),
    ):
        field = headers.get(name)
        if field is not None and isinstance(field.value, bytes) and field.value:
            found[kind] = field.value
    return found
