"""What a session tells its driver, besides bytes to send.

`codec.packets.PublishRun` is an event too: the messages of one chunk, to be stored. Events that ask
for something say which `Session` method gives the answer.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from adapters.mqtt.codec.packets import PublishRun

if TYPE_CHECKING:
    from adapters.mqtt.codec.packets import Connect, Will
    from adapters.mqtt.codec.topic_filter import TopicFilter


class ConnectReceived(msgspec.Struct, frozen=True):
    """A client wants in. Answer with `accept`, `refuse` or `send_authentication`.

    `client_id_needed`: the client gave none; `accept` must name a new, unique one.
    `session_expiry_s` is what the session gets if accepted; 0 ends with the connection.
    """

    connect: Connect
    client_id_needed: bool
    session_expiry_s: int


class AuthenticationReceived(msgspec.Struct, frozen=True):
    """An AUTH packet. Answer with `send_authentication`, `accept`, `refuse` or `disconnect`.

    `again`: the connection is accepted already and the client starts a new round.
    """

    method: str
    data: bytes | None
    again: bool


class PublishesReleased(msgspec.Struct, frozen=True):
    """PUBREL came for these QoS 2 messages. When that is on record: `releases_committed`."""

    packet_ids: list[int]


class DeliveriesReceived(msgspec.Struct, frozen=True):
    """PUBREC came for these deliveries. When that is on record: `receipts_committed`."""

    packet_ids: list[int]
    tokens: list[int]


class DeliveriesCompleted(msgspec.Struct, frozen=True):
    """These deliveries are over, in the order the client ended them; nothing is to be answered.

    `refused` holds those of them that the client refused, token -> reason code: they count as
    acknowledged and are given to nobody else ([MQTT-4.4.0-2], [MQTT-4.8.2-6]).
    """

    tokens: list[int] = msgspec.field(default_factory=list)
    refused: dict[int, int] = msgspec.field(default_factory=dict)


class SubscriptionRequest(NamedTuple):
    """One filter of a SUBSCRIBE.

    `refusal` is 0 where the driver decides, else the reason code that the filter gets anyway;
    `filter` is None exactly then. `qos` is the most that this server grants of what was asked.
    """

    text: str
    filter: TopicFilter | None
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    refusal: int


class SubscribeReceived(msgspec.Struct, frozen=True):
    """Answer with `send_suback`. `subscription_identifier` is 0 if there is none."""

    packet_id: int
    requests: tuple[SubscriptionRequest, ...]
    subscription_identifier: int
    user_properties: tuple[tuple[str, str], ...]

    @property
    def filter_count(self) -> int:
        return len(self.requests)

    def undecided(self) -> list[SubscriptionRequest]:
        """The requests that `send_suback` wants a code for, in order."""
        return [request for request in self.requests if not request.refusal]


class UnsubscribeReceived(msgspec.Struct, frozen=True):
    """Answer with `send_unsuback`: one code a filter; filters compare as text."""

    packet_id: int
    filters: tuple[str, ...]
    user_properties: tuple[tuple[str, str], ...]

    @property
    def filter_count(self) -> int:
        return len(self.filters)


class Initiator(Enum):
    """Who ended a connection."""

    CLIENT = "client"
    SERVER = "server"
    NETWORK = "network"


class ConnectionClosed(msgspec.Struct, frozen=True):
    """The last event of a connection. Send what `data_to_send` has, then close the transport.

    `will` is what is to be published after `will_delay_s`, unless a new connection of this client
    comes first; None: nothing is. The session, if `accepted`, ends `session_expiry_s` after now
    (4,294,967,295: never).
    """

    initiator: Initiator
    reason_code: int
    detail: str
    accepted: bool
    will: Will | None = None
    will_delay_s: int = 0
    session_expiry_s: int = 0


Event: TypeAlias = (
    ConnectReceived
    | AuthenticationReceived
    | PublishRun
    | PublishesReleased
    | DeliveriesReceived
    | DeliveriesCompleted
    | SubscribeReceived
    | UnsubscribeReceived
    | ConnectionClosed
)
