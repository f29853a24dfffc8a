"""Every bound of the AMQP adapter that is not the wire format's own, with its reason.

Sizes are bytes, durations milliseconds, as the names say. A deployment changes the ones that
`AmqpSettings` repeats, through its configuration.
"""

from __future__ import annotations

from typing import Final

# --- Connections ----------------------------------------------------------------------------

FRAME_MAX: Final = 131_072
"""Largest frame we offer in connection.tune: RabbitMQ's default."""
FRAME_MIN: Final = 4_096
"""Smallest frame size a client may ask for: the specification's minimum. RabbitMQ 4.1 asks 8,192
and so broke clients (amqplib before 0.10.7)."""
HANDSHAKE_FRAME_MAX: Final = 65_536
"""Largest frame before connection.open: tokens of single sign-on are passwords of some 10 KiB."""
CHANNEL_MAX: Final = 2_047
"""Highest channel number we offer: RabbitMQ's default."""
CONNECTIONS_MAX: Final = 65_536
"""Connections of the adapter; one more is dropped at once. As many as one address can make to one
port, and about 1 GB when idle."""
HEARTBEAT_S: Final = 60
"""Heartbeat interval we offer: RabbitMQ's default."""
HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""From the TCP connection to connection.open: a silent peer costs a socket and a buffer."""
CLOSE_TIMEOUT_MS: Final = 5_000
"""How long we wait for connection.close-ok before dropping the connection."""
REFUSAL_DELAY_MS: Final = 3_000
"""Wait before a refused login is dropped if the client does not know how to be told: what RabbitMQ
waits, so that clients do not reconnect in a busy loop."""
CONNECTION_NAME_MAX: Final = 256
"""Characters kept of a client's `connection_name`."""

# --- Buffers and flow control ---------------------------------------------------------------

HELD_BYTES_PAUSE: Final = 262_144
"""Bytes read but not parsed, while an operation is under way, above which reading pauses: one
socket read of the event loop."""
PUBLISH_BYTES_PAUSE: Final = 8 * 1024 * 1024
"""Bytes of one connection submitted but not stored yet, above which reading pauses: 80 ms of a
disk that takes 100 MB/s, far more than a group commit needs to stay busy."""
PUBLISH_BYTES_RESUME: Final = PUBLISH_BYTES_PAUSE // 2
"""Reading goes on when so much is left; half, so that it does not flutter."""
DELIVERY_BYTES_WINDOW: Final = 2 * 1024 * 1024
"""Bytes of messages that one consumer's credit may amount to, by the size of its last ones: what is
handed out in one turn of the event loop stands in memory until the peer takes it."""
DELIVERY_BYTES_FIRST_GUESS: Final = 32 * 1024
"""Size of a message assumed before a consumer has had any."""
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest message body: RabbitMQ 4's default and the kernel's hard limit."""
CHANNEL_ASSEMBLY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bodies of all channels of a connection that are announced and not complete: four of the largest,
so that 2,047 channels with a body each cannot fill the memory."""

# --- Transactions ---------------------------------------------------------------------------

TRANSACTION_MESSAGES_MAX: Final = 8_192
"""Messages of one transaction: what the kernel carries out as a whole
(`kernel.api.atomic.TRANSACTION_MESSAGES_MAX`)."""
TRANSACTION_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes that the transactions of a connection hold until they are committed: they stand in memory.
Half of what the kernel carries out as a whole, since a message may grow by the name that it is
stored under."""
TRANSACTION_DELIVERIES_MAX: Final = 10_000
"""Deliveries that one transaction settles: what the kernel carries out as a whole even if each was
got from a queue of its own (`kernel.api.atomic.TRANSACTION_PARTS_MAX`)."""

# --- Caches ---------------------------------------------------------------------------------

ROUTES_MAX: Final = 4_096
"""(exchange, routing key) pairs whose destinations a connection remembers; cleared when full."""
HEADS_MAX: Final = 4_096
"""Message starts (all octets before the body) whose meaning a connection remembers, some 400 bytes
each; cleared when full."""
PROPERTY_BLOCKS_MAX: Final = 1_024
"""Property blocks whose meaning the adapter remembers; cleared when full."""
PROPERTY_BLOCK_BYTES_MAX: Final = 256
"""Longer blocks are not worth remembering: they seldom come twice."""

# --- Consumers ------------------------------------------------------------------------------

PREFETCH_UNLIMITED: Final = 2_000
"""What prefetch 0 means, and the credit of a consumer without acks
(docs/design/delivery.md#delivery)."""
CONSUMERS_PER_CHANNEL_MAX: Final = 1_024
"""A guard against a client that consumes in a loop; nobody was seen with more than some dozens."""
UNACKED_PER_CHANNEL_MAX: Final = 65_535
"""Deliveries of a channel unacknowledged, above which basic.get is refused: what a prefetch count
can say at most. Consumers are bounded by their prefetch."""

# --- Names and declarations -----------------------------------------------------------------

SHORT_STRING_BYTES_MAX: Final = 255
"""Names and routing keys: a short string's length is one octet."""
DECLARATION_BYTES_MAX: Final = 32_768
"""Arguments of one declaration or binding: they are kept in the topic's definition."""
LOAD_ATTEMPTS_MAX: Final = 8
"""Times that one publish may wait for names to be loaded, one exchange behind another; more is a
fault of ours, not a reason to spin."""
