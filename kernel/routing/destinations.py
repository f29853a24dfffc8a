"""Where messages of one (router, key) or tree name go, as a batch takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..api import message as messages
from ..api.message import Ext
from ..api.model import Overflow, QueueRef, TopicInfo
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup, TopicId
from .watches import LocalWatch


class Forwarder(Protocol):
    """A destination that carries messages on by itself, all of a batch at once: it keeps none, and
    nobody waits for it. It may have patterns of the tree (`tree_routes.add_forwarder`).
    """

    def forward(self, messages: Sequence[tuple[Found, bytes]]) -> None:
        """Take slots, each with the destinations under which it was published."""


class Found:
    """`client.Destinations`: topics, the tree's routes, and a short cut for a single queue."""

    __slots__ = (
        "asks_leader",
        "count",
        "forwarders",
        "is_stored",
        "name",
        "refs",
        "refuses_when_full",
        "retain_in",
        "round_robin",
        "routed_in",
        "safe_bytes",
        "single",
        "small_bytes",
        "spread",
        "tenant",
        "topics",
        "tree_name",
        "watches",
    )

    def __init__(
        self,
        topics: tuple[TopicInfo, ...],
        *,
        refs: tuple[QueueRef, ...] = (),
        watches: tuple[LocalWatch, ...] = (),
        forwarders: tuple[Forwarder, ...] = (),
        retain_in: RaftGroup | None = None,
        routed_in: RaftGroup | None = None,
        tree_name: str = "",
        tenant: str = "",
        name: bytes | None = None,
        spread: int = 0,
    ) -> None:
        if len(topics) > 1:
            # The first one counts the message as published: a durable one, which cannot lose it.
            topics = tuple(sorted(topics, key=lambda topic: not topic.options.durable))
        self.topics = topics
        self.refs = refs
        """Reference lists of tree patterns, all in one Raft group."""
        self.watches = watches
        """Live routes of this process."""
        self.forwarders = forwarders
        """Who else takes what is published to `tree_name`, each of them once."""
        self.retain_in = retain_in
        """Raft group that keeps the message as its name's retained one; None: not retained."""
        self.routed_in = routed_in
        """Raft group whose leader looks up the reference lists of `tree_name`; None: they are in
        `refs`, all of them."""
        self.tree_name = tree_name
        self.tenant = tenant
        self.name = name
        """Tree name that a message must be given, since its writer knows nothing of the tree."""
        kept = (retain_in is not None) + (routed_in is not None)
        self.count = len(topics) + len(refs) + len(watches) + len(forwarders) + kept
        self.is_stored = bool(topics or refs)
        """Whether it gets into a queue; with `routed_in`, whether it is known to."""
        self.asks_leader = routed_in is not None and not topics
        """Whether only the leader knows."""
        self.refuses_when_full = (
            bool(topics)
            and self.count == len(topics)
            and all(each.options.overflow is Overflow.REJECT for each in topics)
        )
        """Whether all that get a copy are topics that refuse what they have no room for."""
        self.spread = spread
        """Chooses the queue of a message without ordering key, of topics with several; 0: in turn.
        What is published to one tree name stays in order."""
        self.round_robin = 0
        """Next queue for messages without ordering key, of topics with several."""
        limits = [each.options.message_bytes_max for each in topics]
        self.safe_bytes = min((messages.PROPERTIES_BYTES_MAX, *limits))
        """A message of so many bytes in all is within every limit."""
        self.small_bytes = min(self.safe_bytes, messages.SLOT_BYTES_SMALL)
        """And with so many it is one unit to those who count: the hot path asks no more."""
        self.single: QueueRef | None = None
        if self.count != 1 or name is not None:
            return
        if refs:
            self.single = refs[0]
        elif topics and len(topics[0].queues) == 1:
            self.single = topics[0].queues[0]

    @property
    def topic_ids(self) -> Sequence[TopicId]:
        """See `client.Destinations`."""
        return [each.id for each in self.topics]


def united(found: Sequence[Found]) -> Found:
    """Destinations of one message that has several keys: each topic once. Raises KernelError
    NOT_ALLOWED if more than one key is a name in the tree that leads somewhere: a stored message
    has one name.
    """
    in_tree = [each for each in found if each.count > len(each.topics) or each.name is not None]
    if len(in_tree) > 1:
        names = " and ".join(each.tree_name for each in in_tree[:2])
        raise KernelError(Code.NOT_ALLOWED, f"a message has one name in the tree, not {names}")
    if len(found) == 1:
        return found[0]
    topics = {topic.id: topic for each in found for topic in each.topics}
    merged = Found(tuple(topics.values()))
    if not in_tree:
        return merged
    tree = in_tree[0]
    return Found(
        merged.topics,
        refs=tree.refs,
        watches=tree.watches,
        forwarders=tree.forwarders,
        retain_in=tree.retain_in,
        routed_in=tree.routed_in,
        tree_name=tree.tree_name,
        tenant=tree.tenant,
        name=tree.name,
        spread=tree.spread,
    )


def named(parts: Sequence[bytes], name: bytes) -> tuple[Sequence[bytes], int]:
    """A message's parts with the tree name put into its ext block, unless it has one; the length
    of all.
    """
    slot = b"".join(parts)
    body_bytes, native_bytes, ext_bytes = messages.LENGTHS.unpack_from(slot, messages.LENGTHS_AT)
    at = messages.HEADER_BYTES
    fields = messages.decode_ext(slot[at : at + ext_bytes])
    if Ext.TREE_NAME in fields:
        return parts, len(slot)
    ext = messages.encode_ext({**fields, Ext.TREE_NAME: name})
    header = bytearray(slot[:at])
    messages.LENGTHS.pack_into(header, messages.LENGTHS_AT, body_bytes, native_bytes, len(ext))
    return (bytes(header) + ext, slot[at + ext_bytes :]), len(slot) + len(ext) - ext_bytes
