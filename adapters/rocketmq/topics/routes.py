"""Routes: where a client finds the queues of a topic, told from where it stands.

The addresses in a route are those that the client dialled, which the request holds: it keeps
talking to the access point it came in by, whatever lies in between. An operator can name another
address for a listener (`advertised`). There is one broker. Every queue may be read, and written
unless it is sealed (ADR 31); it has one number for as long as it is there and broker id 0, and
says which types of messages it takes: clients leave out what has not all of these
(docs/design/rocketmq.md).

A consumer takes from every queue of the topic whichever it names. So a group that delivers at once
is assigned the one queue -1, "any"; a group in order as many as the topic has, because clients work
on each assignment for itself.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from kernel.common.ids import NUMBER_BITS

from ..codec import answer_encoding as wire
from ..codec.answer_encoding import AnswerPlace
from ..errors import Code, RocketmqError
from ..settings import ADDRESSES_MAX

if TYPE_CHECKING:
    from ..codec.answer_encoding import Name
    from ..codec.stubs import Endpoints
    from .ready_topics import Topic

IPV4: Final = 1
IPV6: Final = 2
DOMAIN_NAME: Final = 3
"""`enum AddressScheme`."""

HOST_CHARACTERS_MAX: Final = 253
"""The longest name that DNS has."""

PORT_MAX: Final = 65_535

_ANYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound


def place_of(host: str, port: int) -> AnswerPlace:
    """An address as routes tell it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return AnswerPlace(DOMAIN_NAME, ((host, port),))
    return AnswerPlace(IPV4 if address.version == 4 else IPV6, ((host, port),))


def place_named(address: str) -> AnswerPlace:
    """`host:port` or `[host]:port` as routes tell it. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        message = f"is not host:port but {address!r}"
        raise ValueError(message)
    return place_of(host.strip("[]"), int(port))


def place_seen(
    endpoints: Endpoints, advertised: AnswerPlace | None, bound: AnswerPlace, *, is_node: bool
) -> AnswerPlace:
    """Where the client that dialled `endpoints` finds the broker.

    `advertised`: the operator's word; `bound`: the listener's own address, for a client that does
    not say what it dialled. Raises ILLEGAL_ACCESS_POINT.
    """
    if advertised is not None:
        return advertised
    dialled = [(address.host, address.port) for address in endpoints.addresses]
    if not dialled:
        if bound.addresses[0][0] in _ANYWHERE:
            message = "the request must hold the endpoints that were dialled"
            raise RocketmqError(Code.ILLEGAL_ACCESS_POINT, message)
        return bound
    scheme = endpoints.scheme
    if scheme not in {IPV4, IPV6, DOMAIN_NAME} or len(dialled) > ADDRESSES_MAX:
        message = f"the endpoints need a scheme and have at most {ADDRESSES_MAX} addresses"
        raise RocketmqError(Code.ILLEGAL_ACCESS_POINT, message)
    for host, port in dialled:
        if not host or len(host) > HOST_CHARACTERS_MAX or not 0 < port <= PORT_MAX:
            message = f"{host[:HOST_CHARACTERS_MAX]!a}:{port} is no address"
            raise RocketmqError(Code.ILLEGAL_ACCESS_POINT, message)
    if scheme == DOMAIN_NAME or is_node:
        # A name stands for one address; the Node client dials a list as if it were one name.
        del dialled[1:]
    return AnswerPlace(scheme, tuple(dialled))


def route(topic: Topic, name: Name, broker_name: str, place: AnswerPlace) -> bytes:
    """QueryRouteResponse. `name`: the topic as the client spells it."""
    server = wire.broker(broker_name, place)
    accepts = topic.target.accepted
    writable = topic.info.regular
    return wire.route_answer(
        [
            wire.queue(
                name,
                ref.id & NUMBER_BITS,
                server,
                accepts,
                wire.READ_WRITE if ref in writable else wire.READ,
            )
            for ref in topic.info.queues
        ]
    )


def assignment(
    topic: Topic, name: Name, broker_name: str, place: AnswerPlace, *, fifo: bool
) -> bytes:
    """QueryAssignmentResponse, for a group that delivers in order or not."""
    server = wire.broker(broker_name, place)
    accepts = topic.target.accepted
    numbers = [ref.id & NUMBER_BITS for ref in topic.info.queues] if fifo else [-1]
    return wire.assignment_answer([wire.queue(name, number, server, accepts) for number in numbers])
