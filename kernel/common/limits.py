"""Every bound of the kernel that is not a setting, with its reason."""

from __future__ import annotations

NAME_BYTES_MAX = 255
"""Topic, router and tenant names: protocols whose names have a length of 8 bits can spell them."""

RESERVED_PREFIXES = ("__", "amq.", "weir.", "$", "%")
"""No client makes a topic or router whose name begins so (docs/design/model.md#topics-and-queues):
the server's own topics, what adapters predeclare or give names to, special names of the tree and of
protocols."""


def is_servers_own(tenant: str) -> bool:
    """Whether a tenant is the server itself: no client's has a name that begins so."""
    return tenant.startswith(RESERVED_PREFIXES)


GROUP_NAME_BYTES_MAX = 255
"""The SETTLE command keeps the group's name behind a one-byte length."""

DATA_GROUPS_DEFAULT = 4
"""Data groups of a new store (docs/design/replication.md#many-groups-few): enough to spread leaders
over a small cluster."""

DATA_GROUPS_MAX = 64
"""Data groups that a store begins with: those that are added have higher numbers
(`ids.ADDED_FIRST`). More groups cost ticks and heartbeats without adding throughput
(docs/design/replication.md#many-groups-few)."""

ADDED_GROUPS_MAX = 160
"""Data groups that are added while a cluster runs: 225 groups with group 0 and those that it may
begin with. A journal has at most 240 (`log.format.record.BATCH_GROUPS_MAX`). One that nobody uses
costs a store some 70 KB, and three stores together 0.02 % of a core (ADR 30)."""

RESULTS_KEPT_PER_CLIENT = 1_024
"""Results of a gateway's last batches, per Raft group: a retry within them is answered from the
table; a gateway has at most a few hundred batches in flight, since it bounds their bytes."""

RESULTS_KEPT_MS = 15 * 60 * 1_000
"""A gateway's results are forgotten so long (of log time) after its last batch: far beyond the
deadline of any retry (docs/design/delivery.md#publish)."""

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""An entry is closed at this size, so that one commit never holds up others for long. A single
message larger than this makes an entry of its own."""

ENTRY_SLOTS_MAX = 8_192
"""An entry is closed at so many messages: bounds the time of one apply (a few ms)."""

BATCH_COMMANDS_MAX = 60_000
"""Commands of one batch: their number is a u16."""

ENTRY_BATCHES_MAX = 60_000
"""Batches of one entry: their number is a u16."""

PROPOSAL_BYTES_MAX = 64 * 1024 * 1024
"""Bytes submitted and not yet on disk, per store; above it publishes are refused with BUSY.
At 100 MB/s of disk this is over half a second of work: more would only add latency."""

SETTLE_DELAY_MS = 5
SETTLE_COUNT = 500
"""Settlements that get no answer commit after so long or so many
(docs/design/delivery.md#settlement)."""

MARK_AHEAD = 1_000
"""The dispatch mark runs so many messages ahead of dispatch
(docs/design/delivery.md#what-a-crash-may-repeat)."""

MARK_RENEW = 500
"""A new mark is proposed when so few are left, so that dispatch does not wait for its sync."""

SESSION_CLAIM_MS = 10_000
"""The leader keeps what a gateway's consumers hold so long after it was last heard, and a new one
waits as long for claims (docs/adr/0009): a gateway dials again within 2 s, and an election takes up
to 3 s."""

PULL_ANSWER_MS = SESSION_CLAIM_MS + 5_000
"""A pull is answered so long after its own time at the latest: a new leader is elected within 3 s,
and waits for claims before it answers."""

TRANSIENT_BYTES_MAX = 256 * 1024 * 1024
"""Bodies of transient topics in this process; a publish above it is refused with BUSY."""

TRANSIENT_ENTRIES_MAX = 1_000_000
"""Entries of transient topics in this process: bounds the overhead of small messages."""

PUBLISH_DEADLINE_MS = 30_000
"""A publish not on disk by then fails with TIMEOUT: longer than any sync stall seen (0.3 s) and
shorter than the 60 s after which clients give up on a connection."""

TREE_NAME_BYTES_MAX = 65_535
"""Names and patterns of the topic tree: the longest name any protocol can spell."""

TREE_ROOTS_RESERVED = ("$SYS", "$share")
"""First levels of tree names that nobody publishes to, by whatever way: under the one the server
tells figures, the other spells shared subscriptions."""

TREE_CACHE_NAMES = 65_536
"""Names whose destinations are remembered: some 30 MB when full; then all are forgotten at once."""

SUBSCRIPTIONS_MAX = 10_000
"""Subscriptions of one subscriber: a SUBSCRIBE of all of them is still one commit."""

NOTES_MAX = 2 * 65_535 + 1_024
"""Notes of one subscriber: one for each identifier of an exchange in either direction, and some
for the adapter's own use."""

WILL_BYTES_MAX = 256 * 1024
"""A will stands in the state and in every snapshot."""

SUBSCRIBERS_LISTED_MAX = 1_001
"""Subscribers in one answer: a page of a list and the next one, some 100 KB."""

SUBSCRIPTIONS_COUNTED_MAX = 1_000
"""Subscriptions of one subscriber for which what waits is counted: each asks every home group."""

RETAINED_MAX = 1_000_000
"""Retained messages of one tenant: some 400 bytes of memory each."""

HALVES_PER_STORE_MAX = 200_000
"""Half messages of a store that wait for their outcome: about 500 bytes of memory each."""

HALF_BYTES_PER_STORE_MAX = 1024 * 1024 * 1024
"""Their bytes: each keeps its place in the journal until then."""

HALF_OUTCOMES_KEPT = 4_096
"""Outcomes remembered per Raft group, so that a repeated commit or rollback hears the same: a
client repeats within seconds, and this is minutes of a busy producer."""

HALF_CHECKS_PER_TURN = 1_000
"""Half messages of one Raft group whose producers are asked in one second: a crowd that is due at
once must not become a burst that no producer can answer."""

UNUSED_MS_MIN = 3_600_000
"""Shortest time after which a group counts as unused: consumers get as long to come back after a
restart, and what a group holds is not to be lost in a lunch break."""
