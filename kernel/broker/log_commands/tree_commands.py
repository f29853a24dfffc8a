"""Commands of the topic tree: index routes, subscribers, retained messages.

`commands` lists their type bytes beside the others'. One hot command is packed; it stands in the
same batch as the ENQUEUE of the slots that it names:

    RETAIN   u8 tenant length | tenant | u32 slot [slots]
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from ...api.tree import Will


class WillRecord(msgspec.Struct, frozen=True, array_like=True):
    """`tree.Will` in the log."""

    name: str
    slot: bytes
    delay_ms: int
    retain: bool
    user: str = ""
    client: str = ""

    @staticmethod
    def of(will: Will | None) -> WillRecord | None:
        """A will as it stands in the log."""
        if will is None:
            return None
        return WillRecord(will.name, will.slot, will.delay_ms, will.retain, will.user, will.client)


class JoinIndex(msgspec.Struct, frozen=True, array_like=True):
    """Have what is published under a pattern kept for a group, from the next message on. The
    pattern's reference list in this Raft group is made by its first group. Idempotent.
    """

    tenant: str
    pattern: str
    group: str
    ahead: int = 0
    """Messages that may be handed out before the log holds a dispatch mark: for a group whose
    consumer is there already, which so needs no MARK of its own."""
    member: tuple[int, int] | None = None
    """Of a share: (process that ends with it or 0, number) of who joins. None: the group is one
    subscriber's own."""
    epoch: int = 0
    """Of the subscriber that joins: what one of an earlier epoch lets go of is kept."""


class LeaveIndex(msgspec.Struct, frozen=True, array_like=True):
    """Let go of what is kept for a group; the reference list goes with its last one. A share is
    let go of with its last member. Result: whether it was there.
    """

    tenant: str
    pattern: str
    group: str
    member: tuple[int, int] | None = None
    """Of a share: who leaves. None: the whole group goes."""
    epoch: int = 0
    """If it has been joined by a higher one, nothing happens. 0: whoever has joined."""


class OpenSubscriber(msgspec.Struct, frozen=True, array_like=True):
    """A connection opens a subscriber. Result: `Opened`; False if nobody knows it and
    `only_known`; `Belongings` if it is nobody's yet; NOT_ALLOWED if it is another user's. In the
    latter two nothing has changed.
    """

    tenant: str
    name: str
    clean: bool
    expiry_ms: int | None
    will: WillRecord | None
    only_known: bool = False
    """Make no new one."""
    owner: int = 0
    """Number of the process whose connection it is, which outlives the leader; 0: the leader's
    own, so that the connection is over when the next leader begins."""
    user: str = ""
    """Whose it is, or will be; empty: nobody's in particular, as what older builds wrote."""
    adopts: int = 0
    """Number of the subscriber that is nobody's and becomes `user`'s, who may have all of it."""


class Belongings(msgspec.Struct, frozen=True, array_like=True):
    """What a subscriber has that is nobody's, for a user to be judged by who wants it."""

    number: int
    subscriptions: dict[tuple[str, str], bytes]
    """Options by (share, pattern)."""
    notes: dict[bytes, bytes]


class Opened(msgspec.Struct, frozen=True, array_like=True):
    """What `OpenSubscriber` brought: the subscriber as it now is."""

    number: int
    epoch: int
    resumed: bool
    subscriptions: dict[tuple[str, str], bytes]
    """Options by (share, pattern)."""
    notes: dict[bytes, bytes]


class CloseSubscriber(msgspec.Struct, frozen=True, array_like=True):
    """A connection is over: see `tree.Subscriber.close`. Nothing happens to a newer epoch."""

    number: int
    epoch: int
    will: bool
    new_expiry: bool
    expiry_ms: int | None
    notes: tuple[tuple[bytes, bytes | None], ...]


class NoteSubscriber(msgspec.Struct, frozen=True, array_like=True):
    """Set or (None) remove notes. Result: None or an error."""

    number: int
    epoch: int
    changes: tuple[tuple[bytes, bytes | None], ...]


class PutSubscription(msgspec.Struct, frozen=True, array_like=True):
    """Note a subscription, or its new options. Result: whether it is new, or an error."""

    number: int
    epoch: int
    share: str
    pattern: str
    options: bytes


class DeleteSubscription(msgspec.Struct, frozen=True, array_like=True):
    """Forget a subscription. Result: whether there was one, or an error."""

    number: int
    epoch: int
    share: str
    pattern: str


class SubscriberDue(msgspec.Struct, frozen=True, array_like=True):
    """The time of a subscriber's will or of its end may have come; log time decides."""

    number: int
    epoch: int


class EndSubscriber(msgspec.Struct, frozen=True, array_like=True):
    """End a subscriber by name, as a clean start does. Result: whether there was one, or as of
    `OpenSubscriber` if it is not `user`'s.
    """

    tenant: str
    name: str
    user: str = ""
    adopts: int = 0
    """As in `OpenSubscriber`."""
    anyones: bool = False
    """Whosever it is: an administrator says so."""


class SubscriberLeft(msgspec.Struct, frozen=True, array_like=True):
    """A subscriber that has ended has left all its reference lists: forget it."""

    number: int


class WillSent(msgspec.Struct, frozen=True, array_like=True):
    """A will has reached all its destinations."""

    number: int


class ForgetRetained(msgspec.Struct, frozen=True, array_like=True):
    """Remove retained messages that have expired; log time decides."""

    tenant: str
    names: tuple[str, ...]


class ForgetTenant(msgspec.Struct, frozen=True, array_like=True):
    """A tenant is being removed: end some of its subscribers, whose wills are not published, and
    forget some of its retained messages. Result: how many of its subscribers, lists that are still
    being left, wills and retained messages remain. To be repeated until that is 0.
    """

    tenant: str
    most: int
    """Of subscribers, and of retained messages: bounds what one command changes."""


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """How many reference lists each tree name of the batch's messages has brought, as the leader
    has looked it up; negative: nothing was stored of them. Changes nothing. Result: a list of that.
    """

    counts: tuple[int, ...]


TreeControl = (
    JoinIndex
    | LeaveIndex
    | OpenSubscriber
    | CloseSubscriber
    | NoteSubscriber
    | PutSubscription
    | DeleteSubscription
    | SubscriberDue
    | EndSubscriber
    | SubscriberLeft
    | WillSent
    | ForgetRetained
    | ForgetTenant
    | Listed
)

_LENGTH = struct.Struct("<B")


def encode_retain(tenant: str, slots: Sequence[int]) -> bytes:
    """RETAIN of the slots of an entry, published in one tenant."""
    name = tenant.encode()
    return b"".join([_LENGTH.pack(len(name)), name, struct.pack(f"<{len(slots)}I", *slots)])


def decode_retain(body: bytes) -> tuple[str, tuple[int, ...]]:
    """(tenant, slots) of a RETAIN."""
    at = 1 + body[0]
    return body[1:at].decode(), struct.unpack_from(f"<{(len(body) - at) // 4}I", body, at)
