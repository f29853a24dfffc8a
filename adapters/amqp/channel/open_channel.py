"""The state of one channel (`Channel`) and of its consumers (`ChannelLink`).

What the methods of an open channel do is in `channel_methods`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from adapters.amqp.channel.confirms import Confirms
from adapters.amqp.channel.shape import SHAPELESS
from adapters.amqp.channel.transaction import ChannelTransaction, Mode
from adapters.amqp.codec.frames import FRAME_HEADER
from adapters.amqp.codec.methods import short_string
from adapters.amqp.errors import (
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
    AmqpError,
)
from adapters.amqp.lifecycle import ChannelState
from adapters.amqp.limits import (
    DELIVERY_BYTES_FIRST_GUESS,
    DELIVERY_BYTES_WINDOW,
    PREFETCH_UNLIMITED,
)
from kernel.common.ids import TopicId

if TYPE_CHECKING:
    from adapters.amqp.channel.assembly import Assembly
    from adapters.amqp.channel.transaction import Delivered
    from adapters.amqp.codec.method_base import Method
    from adapters.base import DeliveryCounter
    from kernel.api.client import Consumer
    from kernel.api.model import TopicInfo


class ChannelPort(Protocol):
    """What channels ask of their connection."""

    def send(self, number: int, method: Method) -> None:
        """Append a method to the output."""

    def has_news(self, channel: Channel) -> None:
        """Confirms of a channel are to be sent at the end of the turn."""

    def close_channel(self, channel: Channel) -> None:
        """Forget a channel: its consumers end, what it has unacknowledged is given back."""


NO_TOPIC: Final = TopicId(0)

_OPEN: Final = ChannelState.OPEN
"""A name looked up once: a member of an Enum costs 0.12 us each time it is named."""


class Channel:
    """The state of one channel."""

    __slots__ = (
        "_port",
        "assembly",
        "confirms",
        "last_declared",
        "limit",
        "links",
        "mode",
        "next_tag",
        "number",
        "prefetch",
        "replies",
        "state",
        "transaction",
        "unacked",
    )

    def __init__(self, number: int, port: ChannelPort) -> None:
        self.number = number
        self._port = port
        self.state = ChannelState.OPEN
        self.assembly: Assembly | None = None
        """The message whose frames are coming in."""
        self.confirms: Confirms | None = None
        """Set by confirm.select."""
        self.mode = Mode.PLAIN
        self.transaction: ChannelTransaction | None = None
        """Set by tx.select: what waits for the next commit."""
        self.last_declared = ""
        """What an empty queue name means."""
        self.prefetch = 0
        """Limit of each consumer made from now on; 0: PREFETCH_UNLIMITED."""
        self.limit: int | None = None
        """Limit of all consumers together (qos with global=true)."""
        self.links: dict[str, ChannelLink] = {}
        self.replies: ChannelLink | None = None
        """The consumer of direct replies, or a former one."""
        self.next_tag = 1
        self.unacked: dict[int, tuple[Consumer, int]] = {}
        """Delivery tag to (kernel consumer, offset), in ascending order of tags."""

    def reply_address(self) -> str | None:
        """Where direct replies to this channel are sent."""
        link = self.replies
        if link is None or link.consumer is None:
            return None
        return link.queue

    def take_consumers(self) -> list[Consumer]:
        """The kernel consumers of its links, which are no more: what still comes is given back."""
        links = list(self.links.values())
        consumers = [each.consumer for each in links if each.consumer is not None]
        for link in links:
            link.consumer = None
        self.links.clear()
        return consumers

    def takes_at_once(self) -> bool:
        """Whether a publish or an ack may come now, means something, and has its effect at once."""
        return self.assembly is None and self.state is _OPEN and self.transaction is None

    def check_between_messages(self, method: Method) -> None:
        """Refuse a method in the middle of a message. Raises AmqpError 505."""
        if self.assembly is not None and self.state is ChannelState.OPEN:
            raise AmqpError(
                UNEXPECTED_FRAME,
                f"expected content of basic.publish, got method {method.wire_name}",
            )

    def refuse_content(self, kind: int) -> NoReturn:
        """Refuse a header or body frame that nothing announced. Raises AmqpError 505."""
        what = "header" if kind == FRAME_HEADER else "body"
        raise AmqpError(UNEXPECTED_FRAME, f"a content {what} frame is not expected here")

    def has_news(self) -> None:
        """Its confirms have changed: they are sent at the end of the turn."""
        self._port.has_news(self)

    @property
    def outstanding(self) -> int:
        """Deliveries that count towards its limits: unacknowledged, or settled in a transaction
        that is not committed.
        """
        held = self.transaction
        return len(self.unacked) + (held.deliveries if held is not None else 0)

    def take_unacked(self, tag: int, *, multiple: bool) -> Delivered:
        """Take deliveries off the list: one, or all up to and including `tag` (0: all).

        Raises AmqpError 406 for a tag that is not on the list.
        """
        unacked = self.unacked
        if multiple and tag == 0:
            entries = dict(unacked)
            unacked.clear()
            return entries
        if tag not in unacked:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        if not multiple:
            return {tag: unacked.pop(tag)}
        tags = []
        for each in unacked:
            tags.append(each)
            if each == tag:
                break
        return {each: unacked.pop(each) for each in tags}

    def take_all(self) -> list[tuple[Consumer, int]]:
        """Take everything off the list; its transaction is rolled back."""
        self.roll_back()
        return list(self.take_unacked(0, multiple=True).values())

    def roll_back(self) -> None:
        """Drop what its transaction would publish; what it would settle is unacknowledged again."""
        if self.transaction is not None:
            held = self.transaction.clear()
            if held:
                self.unacked = dict(sorted({**self.unacked, **held}.items()))


class ChannelLink:
    """One AMQP consumer."""

    __slots__ = (
        "channel",
        "consumer",
        "counter",
        "credit",
        "limit",
        "low",
        "no_ack",
        "queue",
        "shape",
        "size_estimate",
        "tag",
        "tag_bytes",
        "tells_attempt",
        "topic",
        "topic_id",
        "unacked",
    )

    def __init__(self, channel: Channel, tag: str, queue: str, limit: int, *, no_ack: bool) -> None:
        self.channel = channel
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.limit = limit or PREFETCH_UNLIMITED
        """Deliveries it may have unacknowledged."""
        self.unacked = 0
        self.credit = 0
        """What its kernel consumer may still hand out."""
        self.low = 0
        """Credit down to which none is added."""
        self.shape = SHAPELESS
        """Of the message delivered last."""
        self.size_estimate = DELIVERY_BYTES_FIRST_GUESS
        self.consumer: Consumer | None = None
        self.topic_id = NO_TOPIC
        """Of the queue, as limits know it."""
        self.topic: TopicInfo | None = None
        """Of the queue, if consuming it takes a right."""
        self.counter: DeliveryCounter | None = None
        self.tag_bytes = short_string(tag)
        self.tells_attempt = False
        """Whether redeliveries say how often they came, as a quorum queue's do."""

    def room(self, *, is_writing_paused: bool) -> int:
        """The credit it should have now."""
        if is_writing_paused:
            return 0
        window = DELIVERY_BYTES_WINDOW // self.size_estimate or 1
        self.low = min(self.limit, window) // 2
        if self.no_ack:
            return min(PREFETCH_UNLIMITED, window)
        left = min(self.limit - self.unacked, window)
        if self.channel.limit is not None:
            self.low = PREFETCH_UNLIMITED
            left = min(left, self.channel.limit - self.channel.outstanding)
        return max(left, 0)
