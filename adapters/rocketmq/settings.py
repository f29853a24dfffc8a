"""The settings of the RocketMQ adapter: what an operator can set, and the bounds nobody can.

Field names are those of protocols.yaml (`protocols.rocketmq.limits` and `.options`). Defaults are
those of the reference implementation (docs/design/rocketmq.md) but for three: delays may reach 40
days, as its documentation promises; the shortest invisible time may be set down to one second; a
client may ask for a poll of less than five seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from auth.principal import DEFAULT_TENANT, SignInMode
from auth.sign_in.mqv2 import SKEW_MS_DEFAULT
from kernel.api.model import Start

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

# --- Bounds -------------------------------------------------------------------------------------

MESSAGE_ID_CHARACTERS_MAX: Final = 128
"""Clients make ids of 34 characters; another system's may pass through."""

KEYS_MAX: Final = 256
"""Keys of a message; together with tag and properties they obey `properties_bytes_max` besides."""

SEND_MESSAGES_MAX: Final = 1_024
"""Messages of one SendMessage: what one commit takes without holding up others (a few ms)."""

ACK_ENTRIES_MAX: Final = 1_024
"""Entries of one AckMessage: 32 full receives."""

FILTER_TAGS_MAX: Final = 256
"""Tags of one filter expression."""

FILTERS_KEPT_MAX: Final = 256
"""SQL92 expressions kept compiled, at most some 20 KB each: an application has a few."""

PULL_LOOK_S: Final = 0.25
"""A pull by offset that found nothing looks again so often."""

FIRST_BYTE_S: Final = 10
"""A connection that has not said anything for so long is closed; clients speak at once."""

ATTEMPT_ID_CHARACTERS_MAX: Final = 128
"""Clients send a UUID."""

ADDRESSES_MAX: Final = 16
"""Addresses of an access point that are told back to its client."""

CLIENT_ID_CHARACTERS_MAX: Final = 255
"""Clients say `host@pid@number@time`; host names end at 253."""

CLIENTS_MAX: Final = 100_000
"""Clients remembered; the one silent for longest is forgotten first. About 400 bytes each."""

CLIENT_SILENT_MS_MAX: Final = 35_000
"""A client without a stream that has not been heard for three heartbeats (10 s) and some is gone:
its leases are renewed no more."""

CLIENT_FORGOTTEN_MS: Final = 10 * _MINUTE_MS
"""Client ids change with every start: what is known of one goes when it has been silent so long."""

TURNED_AWAY_MS: Final = 30_000
"""So long a client that is one connection too many is served nothing: clients try to open a stream
again within so long."""

MOVED_MS: Final = 10 * _MINUTE_MS
"""A client sent to another gateway that has not asked for its routes for so long is forgotten:
clients ask every 30 s, always at the gateway they were configured with."""

MOVED_SILENT_MS: Final = 15_000
"""A client sent to another gateway that has left out a heartbeat (10 s) has gone there. Its stream
is ended, since it would keep it for ever."""

RENEWALS_MAX: Final = 200_000
"""Leases renewed for push consumers, about 300 bytes each. Those above it run out after
`auto_renew_lease_ms`; real clients hold 1,024 messages each."""

RENEWALS_PER_CALL: Final = 512
"""Leases extended by one call of the kernel."""

ATTEMPTS_KEPT_MAX: Final = 10_000
"""Receives of ordered groups that a repeat with the same attempt id finds again."""

CALLERS_MAX: Final = 4_096
"""Signed headers kept with what they mean: clients sign once a second."""

TOPICS_KEPT_MAX: Final = 10_000
"""Topics kept in the form that requests need them in."""

TAILS_KEPT_MAX: Final = 4_096
"""Ends of system properties known to be good, about 150 bytes each: a client has a new one each
second, or (with nanoseconds) with every message."""

PUBLISH_BYTES_MAX: Final = 512 * 1024
PUBLISH_MESSAGES_MAX: Final = 512
"""Sends that come together share a kernel batch up to this size and number: enough to share its
cost, and few enough that finding a message's offset in it stays cheap."""

GATHER_S: Final = 0.002
"""Sends gather as long as another one comes within this time. Pauses of a busy machine are shorter,
most syncs of a disk not."""

GATHERINGS_MAX: Final = 8
"""So many times, at most: no send waits longer than some milliseconds for others."""

STREAMS_MAX: Final = 2_048
"""Calls of one connection at once, for the headers of each are kept: a client has a poll for each
queue that it takes from, and some more."""

TELEMETRY_QUEUE_MAX: Final = 16
"""Answers that wait for a client which does not read. Clients are sent one per five minutes."""

QUESTION_BYTES_MAX: Final = 8 * 1024 * 1024
"""Questions about transactions that wait for a client; each holds a message. Two of the largest, or
thousands of the usual ones; those above it are not put, and asked again an interval later."""

STREAM_TOPICS_MAX: Final = 1_024
"""Topics of transactions about which one stream is asked; applications have a few."""

TELEMETRY_WRITE_TIMEOUT_S: Final = 10
"""A stream whose client has not taken a command for so long is ended; clients open a new one."""

DRAIN_GRACE_S: Final = 15
"""For calls under way when the server is told to stop: shorter than the node's own patience."""

POLL_MARGIN_MS: Final = 400
"""A poll ends so long before the deadline of its call: the answer must arrive before it does. A
third of the wait that the Python client adds to the poll it asks for."""

UNDELIVERED_DELAY_MS: Final = 1_000
"""Messages that were being written to a client which went away come back after so long, as in the
reference."""

BACKOFF_S: Final = (
    *(1, 5, 10, 30),
    *(60, 120, 180, 240, 300, 360, 420, 480, 540, 600),
    *(1_200, 1_800, 3_600, 7_200),
)
"""Delays between attempts, as the reference has them: consumers wait so long before the next one.
Whole seconds, because the Python client reads nothing else."""


class AutoCreate(StrEnum):
    """Whether a topic is made by asking for the route to it."""

    LOOPBACK = "loopback"
    """In the tenant `default`, while every listener of the server is on loopback."""
    ALWAYS = "always"
    """In every tenant."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class RocketmqSettings:
    """See protocols.yaml for the defaults and their reasons."""

    sign_in: SignInMode = SignInMode.VERIFY
    sign_in_skew_ms_max: int | None = SKEW_MS_DEFAULT
    """Window on signed times; None: any. See auth.sign_in.mqv2."""
    namespaces: Mapping[str, str] = field(default_factory=lambda: {"": DEFAULT_TENANT})
    """Tenant by namespace; a namespace that is not here is its tenant's name."""
    advertised: Mapping[str, str] = field(default_factory=dict)
    """`host:port` told in routes, by listener; else the address that the client dialled."""
    broker_name: str = "weir"
    """The name of the one broker in routes."""
    auto_create: AutoCreate = AutoCreate.LOOPBACK
    """Make a topic when a route to it is asked for, by who may configure it."""
    is_loopback: bool = False
    """Whether every listener of the server is."""
    auto_create_queues: int = 8
    stream_retention_ms: int = 3 * _DAY_MS
    """How long topics made by use keep messages."""
    stream_start: Start = Start.EARLIEST
    """Where a new consumer group of a stream topic begins."""
    dead_letter_retention_ms: int = 3 * _DAY_MS
    """How long a topic of dead letters made by use keeps them."""
    attempts_max: int = 17
    """Attempts after which a message of a group made by use is dead-lettered: 16 retries."""
    body_bytes_max: int = 4 * 1024 * 1024
    properties_bytes_max: int = 16 * 1024
    """User properties, tag and keys of a message together."""
    properties_max: int = 128
    message_group_bytes_max: int = 63
    topic_characters_max: int = 127
    group_characters_max: int = 120
    delay_ms_max: int = 40 * _DAY_MS
    receive_messages_max: int = 32
    invisible_ms_min: int = 10_000
    """Of a receive; a change of it may be 0."""
    invisible_ms_max: int = 12 * _HOUR_MS
    polling_ms_max: int = 20_000
    polls_max: int = 10_000
    """Receives that wait, of all clients; about 22 KB each in gRPC."""
    auto_renew_lease_ms: int = 60_000
    """Lease of messages that the server renews for a push consumer while that is alive."""
    auto_renew_ms_max: int = 3 * _HOUR_MS
    """For how long it renews them."""
    connections_max: int = 65_536
    """Of a listener for TLS and plain text; of others gRPC does not tell."""
    request_bytes_max: int = 130 * 1024 * 1024
    idle_timeout_ms: int = 120_000
    """A connection without a call for so long is closed."""

    def makes_topics_of(self, tenant: str) -> bool:
        """Whether asking for the route to a topic of a tenant makes it."""
        if self.auto_create is AutoCreate.LOOPBACK:
            return self.is_loopback and tenant == DEFAULT_TENANT
        return self.auto_create is AutoCreate.ALWAYS
