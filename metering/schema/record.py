"""The metering record, version 1: what one key did in one window of time.

A record is an aggregate, never one request. Its identity is (node, epoch, seq): the epoch is the
number that registration granted to the node, and seq counts that node's records densely from 0
within the epoch. An identity is assigned once and its content never changes, so a reader that
meets it twice knows a repeat (same content) from a fault (other content). The incarnation is drawn
at random whenever a process opens the log: two of them in one epoch of a node prove that the log
was put back to an earlier state.

Three kinds share the columns:

    api    counted in a gateway's memory: transient traffic, empty receives, calls, egress
    store  cumulative since `cum_since`, as of `log_index` of `raft_group`; counted by apply
    gauge  a level over the window: its peak, and its integral in units times seconds

What `action` counts (docs/design/billing.md):

    publish  messages the kernel accepted, once each, however many destinations matched
    route    durable references made; its sum is the growth of the end offsets
    deliver  messages handed to consumers, each attempt once; of timed leases, those made
    return   of the leases counted as deliver, those that reached nobody: the bill takes them off
    ack      messages a consumer group has done with
    receive, extend, connect, ping, admin   calls, whatever they carried
    connections, queues, storage            levels, kind=gauge only

Rules that make the bill provable:
- A window never crosses an hour of UTC, hence never a day or a billing period.
- Units are computed per call (64 KiB) or per message (4 KiB) before they are summed, because no
  sum of bytes gives them back.
- Moves the server makes itself (dead letters, rewrites, redrive) carry the protocol `internal`:
  counted for the reconciliation, never billed.
- No client id, key, payload or address is in a record: privacy, and bounded cardinality.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Readers refuse a version they do not know; columns they do not know are skipped.
SCHEMA_VERSION = 1

# Origin of the server's own moves. The other origins are names that adapters register.
INTERNAL = "internal"

# Where topics and groups go that are over a tenant's share of keys (see counters.py).
OTHER = "__other"

# No window reaches over the end of one.
HOUR_US = 3_600_000_000

# Longest text of any column, in UTF-8 bytes. Kernel names are no longer than this.
TEXT_BYTES_MAX = 255

# Integers are stored as signed 64-bit columns in the archive.
NUMBER_MAX = 2**63 - 1


class Kind(StrEnum):
    API = "api"
    STORE = "store"
    GAUGE = "gauge"


class Action(StrEnum):
    PUBLISH = "publish"
    ROUTE = "route"
    DELIVER = "deliver"
    RETURN = "return"
    ACK = "ack"
    RECEIVE = "receive"
    EXTEND = "extend"
    CONNECT = "connect"
    PING = "ping"
    ADMIN = "admin"
    CONNECTIONS = "connections"
    QUEUES = "queues"
    STORAGE = "storage"


class QueueClass(StrEnum):
    """What a price may depend on beside the protocol; the three QoS classes are MQTT's."""

    STANDARD = "standard"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    QOS0 = "qos0"
    QOS1 = "qos1"
    QOS2 = "qos2"


class Network(StrEnum):
    INTERNAL = "internal"
    INTERNET = "internet"


class Outcome(StrEnum):
    """How the call ended. A server error is counted and never billed."""

    OK = "ok"
    EMPTY = "empty"
    CLIENT_ERROR = "client_error"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"


@dataclass(frozen=True, slots=True)
class Record:
    """One row. Times are microseconds since 1970 UTC, sizes are bytes, counts are >= 0."""

    node: str
    epoch: int
    seq: int
    # For lateness statistics only: rating and comparison of repeats leave it out.
    emitted_at_us: int
    window_start_us: int
    window_end_us: int

    kind: str
    tenant: str
    account: str = ""
    protocol: str = ""
    action: str = Action.PUBLISH
    # The protocol's own name of the call, such as SendMessageBatch; empty for kind=store.
    api_action: str = ""
    topic: str = ""
    group: str = ""
    queue_class: str = QueueClass.STANDARD
    network: str = Network.INTERNAL
    region: str = ""
    outcome: str = Outcome.OK

    requests: int = 0
    units_64k: int = 0
    units_4k: int = 0
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    # -1 where no Raft group counted. A counter that the state machine forgot and began again has
    # another `cum_since` (the log index of its first entry): it is another series, from zero.
    raft_group: int = -1
    cum_since: int = 0
    log_index: int = 0
    cum_messages: int = 0
    cum_bytes: int = 0
    cum_units_4k: int = 0

    gauge_max: int = 0
    gauge_integral: int = 0

    # Of the log, as far as the writer told (older ones did not: 0).
    incarnation: int = 0


# The columns that a message of rows stores one value a row for; (node, epoch, seq, emitted_at_us,
# incarnation) are stored once for the whole message.
TEXT_COLUMNS = (
    "kind", "tenant", "account", "protocol", "action", "api_action", "topic", "group",
    "queue_class", "network", "region", "outcome",
)  # fmt: skip
NUMBER_COLUMNS = (
    "window_start_us", "window_end_us",
    "requests", "units_64k", "units_4k", "messages", "bytes_in", "bytes_out",
    "raft_group", "cum_since", "log_index", "cum_messages", "cum_bytes", "cum_units_4k",
    "gauge_max", "gauge_integral",
)  # fmt: skip
CUMULATIVE_COLUMNS = ("cum_messages", "cum_bytes", "cum_units_4k")

# Closed sets of values: a reader refuses a row with another, because no price could match it.
CLOSED_COLUMNS: dict[str, frozenset[str]] = {
    "kind": frozenset(Kind),
    "action": frozenset(Action),
    "queue_class": frozenset(QueueClass),
    "network": frozenset(Network),
    "outcome": frozenset(Outcome),
}


@dataclass(frozen=True, slots=True)
class FlushId:
    """The identity of one flush: these records of this node, and no others, ever."""

    node: str
    epoch: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one node and epoch with consecutive seq, held as columns.

    `text` has a list for each of TEXT_COLUMNS and `numbers` for each of NUMBER_COLUMNS, all of
    `rows` values; `Batch.of` builds one from records.
    """

    node: str
    epoch: int
    first_seq: int
    emitted_at_us: int
    rows: int
    text: dict[str, Sequence[str]]
    numbers: dict[str, Sequence[int]]
    incarnation: int = 0

    @property
    def flush_id(self) -> FlushId:
        return FlushId(self.node, self.epoch, self.first_seq, self.first_seq + self.rows - 1)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Batch:
        """The batch of these records.

        Raises ValueError unless they share node, epoch, emitted_at_us and incarnation and their seq
        is dense.
        """
        if not records:
            raise ValueError("a batch holds at least one record")
        first = records[0]
        for position, record in enumerate(records):
            if _shared(record) != _shared(first):
                raise ValueError(
                    "the records of a batch share node, epoch, emitted_at_us and incarnation"
                )
            if record.seq != first.seq + position:
                raise ValueError(f"seq {record.seq} follows {first.seq + position - 1}")
        return cls(
            node=first.node,
            epoch=first.epoch,
            first_seq=first.seq,
            emitted_at_us=first.emitted_at_us,
            rows=len(records),
            text={name: [getattr(record, name) for record in records] for name in TEXT_COLUMNS},
            numbers={
                name: [getattr(record, name) for record in records] for name in NUMBER_COLUMNS
            },
            incarnation=first.incarnation,
        )

    def records(self) -> Iterator[Record]:
        """The rows as records, in order of seq."""
        names = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
        columns: list[Sequence[str] | Sequence[int]] = [self.text[name] for name in TEXT_COLUMNS]
        columns += [self.numbers[name] for name in NUMBER_COLUMNS]
        for position, row in enumerate(zip(*columns, strict=True)):
            values: dict[str, Any] = dict(zip(names, row, strict=True))
            yield Record(
                node=self.node,
                epoch=self.epoch,
                seq=self.first_seq + position,
                emitted_at_us=self.emitted_at_us,
                incarnation=self.incarnation,
                **values,
            )


def _shared(record: Record) -> tuple[object, ...]:
    return record.node, record.epoch, record.emitted_at_us, record.incarnation
