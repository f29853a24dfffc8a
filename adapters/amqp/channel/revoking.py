"""Consumers whose user may not consume any more: ended as the client can hear it.

A client that has said `consumer_cancel_notify` gets basic.cancel, as from a queue that is deleted:
it keeps its channel, and what it was given it may still settle. To any other the channel is closed
with 403, or it would wait for ever for messages that do not come; what it held is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from adapters.amqp.codec.spec import BasicCancel
from adapters.amqp.errors import ACCESS_REFUSED, CONNECTION_FORCED, AmqpError
from adapters.amqp.lifecycle import ChannelState
from adapters.amqp.names import resource
from adapters.base import RECHECK_STEP
from adapters.tree_rights import allowed, out_of_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adapters.amqp.caller import Caller
    from adapters.amqp.channel.open_channel import Channel, ChannelLink
    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.environment import Counters
    from adapters.amqp.handshake import ClientFeatures
    from adapters.base import Rights

USER_GONE: Final = "the user was removed, disabled or signed out"


class RecheckedConnection(Protocol):
    """A connection whose rights are looked at again."""

    rights: Rights | None
    caller: Caller | None
    channels: dict[int, Channel]
    features: ClientFeatures

    def send(self, number: int, method: Method) -> None:
        """Append a method to the output."""

    def fail(self, number: int, error: AmqpError) -> None:
        """Close a channel, or with 0 the connection."""

    def rights_changed(self) -> None:
        """What was found to be allowed has to be looked at again."""


def recheck(connection: RecheckedConnection, counters: Counters) -> Iterator[None]:
    """`adapters.base.Holder.recheck` of one connection."""
    rights, caller = connection.rights, connection.caller
    if rights is None:
        return
    if not rights.is_alive():
        connection.fail(0, AmqpError(CONNECTION_FORCED, USER_GONE))
        return
    connection.rights_changed()
    if caller is None:
        return
    seen = 0
    for channel in list(connection.channels.values()):
        for link in list(channel.links.values()):
            seen += 1
            if not seen % RECHECK_STEP:
                yield
            if channel.state is not ChannelState.OPEN:
                break
            is_there = channel.links.get(link.tag) is link and link.consumer is not None
            if is_there and not may_stay(caller, link):
                counters.revoked += 1
                _end(connection, caller, channel, link)


def may_stay(caller: Caller, link: ChannelLink) -> bool:
    """Whether the user may consume what a link consumes; direct replies need no right."""
    return link.topic is None or allowed(caller.rights, out_of_topic(link.queue, link.topic))


def withdrawn(caller: Caller, link: ChannelLink) -> AmqpError:
    """What a client is told that cannot be told of one consumer."""
    where = resource("queue", link.queue, caller.virtual_host)
    user = caller.rights.principal.name
    return AmqpError(ACCESS_REFUSED, f"access to {where} was withdrawn from user '{user}'")


def _end(
    connection: RecheckedConnection, caller: Caller, channel: Channel, link: ChannelLink
) -> None:
    if not connection.features.wants_cancel_notify:
        connection.fail(channel.number, withdrawn(caller, link))
        return
    consumer, link.consumer = link.consumer, None
    del channel.links[link.tag]
    if consumer is not None:
        consumer.cancel()
    connection.send(channel.number, BasicCancel(link.tag, nowait=True))
