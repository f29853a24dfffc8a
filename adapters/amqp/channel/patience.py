"""Consumers that may hold a delivery only so long (`x-consumer-timeout`, RabbitMQ's extension).

A delivery carries no time. Instead, about once a second, each such consumer's channel is asked how
far it has numbered its deliveries: what was numbered a timeout ago and is still unacknowledged has
been held for longer. So a timeout is noticed up to a second late, or a STEPS-th part of it, and
consumers without one cost nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from adapters.amqp.errors import PRECONDITION_FAILED, AmqpError
from adapters.amqp.lifecycle import ChannelState

if TYPE_CHECKING:
    from adapters.amqp.channel.open_channel import Channel, ChannelLink

STEPS: Final = 60
"""Looks that are remembered of a timeout: 30 s of precision for RabbitMQ's usual 30 minutes."""


class Patience:
    """How long one link may hold a delivery."""

    __slots__ = ("_late", "_looks", "link", "timeout_ms")

    def __init__(self, link: ChannelLink, timeout_ms: int) -> None:
        self.link = link
        self.timeout_ms = timeout_ms
        self._looks: deque[tuple[int, int]] = deque()
        """(time, last delivery tag then) of the last looks."""
        self._late = 0
        """Deliveries up to this tag are older than the timeout."""

    def is_over(self, now_ms: int) -> bool:
        """Whether the link holds something for too long."""
        looks, channel = self._looks, self.link.channel
        while looks and looks[0][0] <= now_ms - self.timeout_ms:
            self._late = looks.popleft()[1]
        last = channel.next_tag - 1
        if not looks or (last > looks[-1][1] and now_ms - looks[-1][0] >= self.timeout_ms // STEPS):
            looks.append((now_ms, last))
        for tag, (consumer, _) in channel.unacked.items():
            if tag > self._late:
                break
            if consumer.tag is self.link:
                return True
        return False

    @property
    def is_needed(self) -> bool:
        """Whether the link could still hold something."""
        link = self.link
        is_there = link.consumer is not None or link.unacked > 0
        return is_there and link.channel.state is ChannelState.OPEN


class Patiences:
    """Watches the links of one connection that may hold a delivery only so long."""

    def __init__(self) -> None:
        self._links: dict[ChannelLink, Patience] = {}

    def watch(self, link: ChannelLink, timeout_ms: int) -> None:
        """A link has begun that may hold a delivery only so long."""
        self._links[link] = Patience(link, timeout_ms)

    def check(self, now_ms: int) -> list[tuple[Channel, AmqpError]]:
        """Channels to be closed, and why; called about once a second."""
        over: list[tuple[Channel, AmqpError]] = []
        for link, patience in list(self._links.items()):
            if not patience.is_needed:
                del self._links[link]
            elif patience.is_over(now_ms):
                text = (
                    f"delivery acknowledgement on channel {link.channel.number} timed out. "
                    f"Timeout value used: {patience.timeout_ms} ms. This timeout value can be "
                    "configured, see consumers doc guide to learn more"
                )
                over.append((link.channel, AmqpError(PRECONDITION_FAILED, text)))
        return over
