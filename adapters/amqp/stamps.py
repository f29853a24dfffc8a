"""What a property block means for the header of a stored message, remembered.

Publishers send the same few property blocks over and over: the block, taken as bytes, is the key.
One object serves all connections of the adapter.
"""

from __future__ import annotations

from typing import NamedTuple

from adapters.amqp import properties
from adapters.amqp.errors import NOT_IMPLEMENTED, PRECONDITION_FAILED, AmqpError
from adapters.amqp.limits import PROPERTY_BLOCK_BYTES_MAX, PROPERTY_BLOCKS_MAX
from kernel import message
from kernel.message import Ext, Flag


class Stamp(NamedTuple):
    """What a property block means for the header of a stored message."""

    priority: int
    flags: int
    ttl_ms: int
    delay_ms: int
    key_hash: int
    tag_hash: int
    ext: bytes
    user_id: bytes | None


class Stamps:
    """Remembers what property blocks mean; most publishers send the same few over and over."""

    def __init__(self) -> None:
        self.known: dict[bytes, Stamp] = {}

    def of(self, block: bytes, login: bytes) -> Stamp:
        """The meaning of a block sent by `login`.

        Raises AmqpError 502 for a malformed block, 406 for a bad value or a user-id that is not the
        login, 540 for a header that asks for what we do not do.
        """
        stamp = self.known.get(block) or self._learn(block)
        if stamp.user_id is not None and stamp.user_id != login:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"user_id property set to '{stamp.user_id.decode('utf-8', 'replace')}' but "
                f"authenticated user was '{login.decode()}'",
            )
        return stamp

    def _learn(self, block: bytes) -> Stamp:
        traits = properties.inspect(block)
        headers = traits.headers
        for name in properties.HEADERS_COPIES:
            if headers.get(name) is not None:
                raise AmqpError(NOT_IMPLEMENTED, f"the header {name} is not served")
        ext: dict[int, bytes] = {}
        for name, kind in (
            (properties.HEADER_ORDERING_KEY, Ext.ORDERING_KEY),
            (properties.HEADER_TAG, Ext.TAG),
            (properties.HEADER_KEYS, Ext.KEYS),
        ):
            field = headers.get(name)
            if field is not None and isinstance(field.value, bytes) and field.value:
                ext[kind] = field.value
        key = ext.get(Ext.ORDERING_KEY)
        tag = ext.get(Ext.TAG)
        ttl_ms = traits.ttl_ms
        stamp = Stamp(
            priority=traits.priority,
            flags=int(Flag.PERSISTENT) if traits.persistent else 0,
            # In the header 0 means none; an expiration of 0 is "at once or never".
            ttl_ms=0 if ttl_ms is None else max(ttl_ms, 1),
            delay_ms=traits.delay_ms,
            key_hash=0 if key is None else message.key_hash(key),
            tag_hash=0 if tag is None else message.tag_hash(tag),
            ext=message.encode_ext(ext),
            user_id=traits.user_id,
        )
        if len(block) <= PROPERTY_BLOCK_BYTES_MAX:
            if len(self.known) >= PROPERTY_BLOCKS_MAX:
                self.known.clear()
            self.known[block] = stamp
        return stamp
