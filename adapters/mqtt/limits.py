"""Every bound of the MQTT adapter, each with its reason.

The defaults of `SessionConfig` come from here; a deployment changes them through its configuration,
never by editing a codec. Sizes are bytes, durations are in the unit that the name ends with.
"""

from __future__ import annotations

from typing import Final

# The wire format's own bounds (MQTT5 1.5.4, 1.5.5, 2.2.1).
TEXT_BYTES_MAX: Final = 65_535
VARINT_MAX: Final = 268_435_455
PACKET_ID_MAX: Final = 65_535
RECEIVE_MAXIMUM_MAX: Final = 65_535
# A session expiry of all ones means "never" (MQTT5 3.1.2.11.2).
SESSION_EXPIRY_NEVER: Final = 0xFFFF_FFFF

# The kernel stores bodies of at most 16 MiB beside 256 KiB of properties; the rest is a topic name
# of the greatest legal length and the packet's own header.
PACKET_BYTES_MAX: Final = 16 * 1024 * 1024 + 256 * 1024 + 128 * 1024
# What the kernel stores of a writer's properties.
PUBLISH_PROPERTY_BYTES_MAX: Final = 256 * 1024
# Of any other packet. The smallest take 5 bytes: fifty thousand of them hold the loop for 40 ms.
PROPERTY_BYTES_MAX: Final = 256 * 1024
# Before authentication anybody may send: room for a will of 64 KiB and a large token, no more.
CONNECT_BYTES_MAX: Final = 128 * 1024
# A client may send packets behind CONNECT before it hears CONNACK (MQTT5 3.1.4). Reading pauses at
# the first mark; what one socket read still brings after that must stay below the second.
HELD_BYTES_PAUSE: Final = 64 * 1024
HELD_BYTES_MAX: Final = 1024 * 1024

# A client that opened a connection and says nothing costs a socket and a buffer.
CONNECT_TIMEOUT_MS: Final = 10_000
# The client id names a session record in the kernel. The specification asks for 23, clients with
# certificates or URNs as ids need some hundred.
CLIENT_ID_BYTES_MAX: Final = 1_024

# Packet identifiers kept for what an earlier connection sent and may send again: of a message that
# expires meanwhile that is never known. Half of all identifiers stay free for new deliveries.
KEPT_IDS_MAX: Final = 32_768
# Unacknowledged QoS 1 and 2 messages that one publisher may have with us: a window that hides a
# group commit of some milliseconds at full speed, and bounds what a crash makes it send again.
RECEIVE_MAXIMUM: Final = 1_000
# Unacknowledged deliveries to one subscriber, whatever it offers: each costs an in-flight record.
DELIVERIES_IN_FLIGHT_MAX: Final = 1_000
# Aliases per connection: each holds a reference to an interned name, and most devices publish to a
# handful of topics.
TOPIC_ALIAS_MAXIMUM: Final = 32
TOPIC_ALIASES_OUT_MAX: Final = 32

# SUBSCRIBE and UNSUBSCRIBE requests whose answers are pending before reading pauses.
REQUESTS_PENDING_MAX: Final = 256
# Filters in one SUBSCRIBE; those beyond are refused with 0x97, the others are served. As many as a
# session may have (SUBSCRIPTIONS_PER_SESSION_MAX), since they are set up a part at a time.
FILTERS_PER_SUBSCRIBE_MAX: Final = 10_000
# Filters in one SUBSCRIBE or UNSUBSCRIBE that are read at all: a packet with more closes the
# connection with 0x97. One of the greatest size would hold millions, and the loop for seconds.
FILTERS_READ_MAX: Final = 20_000
# Filters that are set up, served again or ended in one go: 5 ms of the loop, and a batch of
# commands for each Raft group; then everybody else has a turn. Their text is bounded too.
FILTERS_TOGETHER_MAX: Final = 200
FILTER_CHARACTERS_TOGETHER_MAX: Final = 256 * 1024
# One read may bring 256 KiB, which may be a hundred thousand packets. One turn of the loop handles
# those of so many bytes: 20 ms of SUBSCRIBEs, 0.3 ms of PUBLISHes of 100 bytes. A message that is
# larger is not cut into turns.
TURN_BYTES: Final = 64 * 1024
# Subscribers that get a live message in one turn of the loop: to write to so many takes 50 ms at
# 16 KB. For many messages at once, or large ones, so many fewer that these bounds hold too.
FAN_OUT_TOGETHER_MAX: Final = 1_000
FAN_OUT_DELIVERIES_MAX: Final = 16_000
FAN_OUT_BYTES_MAX: Final = 16 * 1024 * 1024
# Live messages that wait until those before them have reached all of very many subscribers. From
# half of it on, who has published is not read; what comes all the same is not put off.
FAN_OUT_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
# Matching costs a step a level; device hierarchies use fewer than ten.
TOPIC_LEVELS_MAX: Final = 128

# Validated topic names are remembered: publishers repeat theirs. About 2 MiB when full of names of
# usual length; longer names are validated each time.
TOPIC_NAMES_REMEMBERED_MAX: Final = 8_192
TOPIC_NAME_REMEMBERED_BYTES_MAX: Final = 256

# Part of a packet proves a live client only if it is a real part of one: a byte now and then must
# not hold a connection open for ever.
KEEP_ALIVE_PROGRESS_BYTES: Final = 1_024
# A client that misses half of one more interval is gone (MQTT5 3.1.2.10).
KEEP_ALIVE_GRACE: Final = 1.5
# What the wire can say. A server that sets less gives it to MQTT 5 clients without keep alive too;
# as it is, a client that wants none has none, and TCP finds out when it is gone.
KEEP_ALIVE_S_MAX: Final = 65_535

# What the kernel calls a topic's messages by is remembered for as many names as are validated.
NAMES_KNOWN_MAX: Final = 8_192
# Properties made of another protocol's attributes: as much as the kernel stores of a writer's.
FOREIGN_PROPERTY_BYTES_MAX: Final = 256 * 1024
# The kernel's names have at most 255 bytes; a longer client id is known by a digest of it.
SUBSCRIBER_NAME_BYTES_MAX: Final = 255

# Live messages beyond what a client takes now: a second of a fast publisher; what comes on top is
# dropped (and counted), because nobody stores it. A message larger than the bytes is taken when
# nothing else waits.
BACKLOG_MESSAGES_MAX: Final = 1_000
BACKLOG_BYTES_MAX: Final = 4 * 1024 * 1024
# Retained messages that one filter of a SUBSCRIBE may bring; a filter that matches more is refused
# with 0x97 instead of being served in part.
RETAINED_PER_FILTER_MAX: Final = 10_000
# Messages that a session with overlapping subscriptions remembers, to send each of them once: more
# than can lie between two copies of one message that several filter queues bring.
RECENT_UIDS_MAX: Final = 4_096
# Copies of unacknowledged messages, by other filters, that such a session holds beside its window:
# sixteen filters on each message of the usual one, some 2 MB. Beyond it they use the window up.
COPIES_HELD_MAX: Final = 16_384
# SUBSCRIBE and UNSUBSCRIBE filters of one session: bounds what a reconnect must set up again.
SUBSCRIPTIONS_PER_SESSION_MAX: Final = 10_000

# How often deadlines of connections are looked at. Keep alive is in seconds, and half of one more
# interval is grace already.
WHEEL_TICK_MS: Final = 1_000
# Deadlines that are looked at in one turn of the loop: 30 ms if all of them are over.
DEADLINES_TOGETHER_MAX: Final = 200
# A WebSocket handshake is an HTTP request of some hundred bytes.
WEBSOCKET_HANDSHAKE_BYTES_MAX: Final = 16 * 1024
