"""The shape of the settings: what protocols.yaml may say, as frozen types.

protocols.yaml is the product's face; this module is its grammar. Three kinds of key exist:

- *settings*, which an operator may change in a file, the environment or a flag;
- *facts* of the program (`versions`, `operations`, a limit's `unit`, `min`, `max`, `reason`),
  which the file states so that people and tests can read them, and which no one may change;
- *names*, the keys of the open maps (`tenants`, `listeners`, `names.aliases`, `protocols`), to
  which a file may add.

Every struct refuses unknown keys. A setting that this version reads but does not yet honour is
refused as well (gateway/config/check.py), because a setting that is silently ignored is a lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from kernel.cluster.replica_count import REPLICAS_MAX
from kernel.common.limits import DATA_GROUPS_MAX
from kernel.quotas.limits import LIMIT_MAX

if TYPE_CHECKING:
    from gateway.config.path import Path

HOST_LENGTH_MAX = 253
"""The longest name that DNS can carry (RFC 1035 section 2.3.4, less length and root octets)."""

WORKERS_MAX = 256
"""More cores than one machine gives to one queue system."""

NODE_NUMBER_MAX = 65_535
"""Numbers are given by people, and never twice."""

PEERS_MAX = 64
"""More addresses than a cluster has stores."""

CLUSTER_NAME_LENGTH_MAX = 64

TOPIC_PATTERNS_MAX = 100
"""Patterns in one setting, each of which is tried on every topic."""

MEMORY_BYTES_MIN = 32 * 1024 * 1024
"""With less than twice the largest message, one client that is not the quickest gets none through.
"""

_Kind = TypeVar("_Kind", bool, int, str)

Scalar = bool | int | str
"""What an option may hold. The type of an option is the type of its default."""


class Listener(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One address at which a protocol, or the node itself, is reached.

    What does not change from listener to listener is described here, once; the descriptions are
    those of docs/reference/config.md.
    """

    host: Annotated[
        str, Meta(min_length=1, max_length=HOST_LENGTH_MAX, description="Address to bind.")
    ]
    port: Annotated[int, Meta(ge=0, le=65_535, description="TCP port; 0 takes a free one.")]
    enabled: Annotated[bool, Meta(description="Whether to listen.")] = True
    tls: Annotated[bool, Meta(description="Whether a TLS handshake comes first.")] = False
    plain_too: Annotated[
        bool, Meta(description="With `tls`: plain connections too, told apart by the first byte.")
    ] = False
    advertised: Annotated[
        str | None, Meta(description="Address told to clients; null echoes the one they used.")
    ] = None
    client_certificate: Annotated[
        Literal["none", "optional", "required"],
        Meta(description="With `tls`: whether clients are asked for a certificate of their own."),
    ] = "none"


class Limit(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One bound, its unit and why it is what it is; `min` and `max` are what the wire allows."""

    value: int
    unit: str
    reason: str
    min: int = 0
    max: int | None = None


class Operation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a protocol's operation gets: served whole, in part, or refused by a named error.

    `test` is the pytest node id that proves the status. `error` is what a refusal answers, and is
    there exactly when the status is `refused`. `note` says what `partial` leaves out.
    """

    status: Literal["full", "partial", "refused"]
    test: str
    error: str | None = None
    note: str | None = None


class Auth(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a peer of one protocol proves who it is; who exists is auth's business."""

    methods: list[str] = []


class Protocol(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One protocol: which adapter speaks it, where, within which bounds, and how much of it.

    `adapter` is `module:name` of its declaration (`declared`); null: this version has none.
    """

    adapter: str | None
    enabled: bool
    versions: list[str] = []
    listeners: dict[str, Listener] = {}
    auth: Auth = Auth()
    limits: dict[str, Limit] = {}
    options: dict[str, Scalar] = {}
    operations: dict[str, Operation] = {}

    def limit(self, name: str) -> int:
        """Return the limit's value in the unit the file states; KeyError if there is none."""
        return self.limits[name].value

    def values(self) -> dict[str, Scalar]:
        """Return all limits and options by name: what an adapter's settings are made of."""
        return {name: limit.value for name, limit in self.limits.items()} | self.options

    def flag(self, name: str) -> bool:
        """Return a yes-or-no option; KeyError if unknown, TypeError if it is of another type."""
        return _option(self.options, name, bool)

    def number(self, name: str) -> int:
        """Return a whole-number option; KeyError if unknown, TypeError if of another type."""
        return _option(self.options, name, int)

    def text(self, name: str) -> str:
        """Return a text option; KeyError if unknown, TypeError if of another type."""
        return _option(self.options, name, str)

    def open_listeners(self) -> dict[str, Listener]:
        """Return the listeners to bind, by name and in the file's order; none if not enabled."""
        if not self.enabled:
            return {}
        return {name: listener for name, listener in self.listeners.items() if listener.enabled}


class Metering(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Counting what is served, for the bill."""

    enabled: bool
    flush_interval_s: Annotated[int, Meta(ge=1, le=3_600)]
    export_interval_s: Annotated[int, Meta(ge=0, le=86_400)]
    price_book: str | None


class Metrics(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What /metrics shows of single topics."""

    topics: Annotated[list[str], Meta(max_length=TOPIC_PATTERNS_MAX)]
    top: Annotated[int, Meta(ge=0, le=1_000)]


class Memory(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What clients of all protocols together may make a gateway hold, at least one of the largest
    messages each.
    """

    unfinished_input_bytes: Annotated[int, Meta(ge=MEMORY_BYTES_MIN)]
    unread_output_bytes: Annotated[int, Meta(ge=MEMORY_BYTES_MIN)]


class Tls(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The certificate of every listener that begins with a TLS handshake."""

    certificate: str | None = None
    private_key: str | None = None
    client_authority: str | None = None


class ClusterTls(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Mutual TLS between the processes of a cluster: all three, or none."""

    certificate: str | None = None
    private_key: str | None = None
    authority: str | None = None


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the processes of a cluster know of each other before they have spoken."""

    name: Annotated[str, Meta(min_length=1, max_length=CLUSTER_NAME_LENGTH_MAX)]
    number: Annotated[int, Meta(ge=0, le=NODE_NUMBER_MAX)]
    peers: Annotated[list[str], Meta(max_length=PEERS_MAX)]
    address: str | None
    host: Annotated[str, Meta(min_length=1, max_length=HOST_LENGTH_MAX)] | None
    zone: Annotated[str, Meta(min_length=1, max_length=HOST_LENGTH_MAX)] | None
    secret_file: str | None
    tls: ClusterTls
    election_timeout_ms: Annotated[int, Meta(ge=100, le=60_000)]
    data_groups: Annotated[int, Meta(ge=1, le=DATA_GROUPS_MAX)]
    replicas: Annotated[int, Meta(ge=0, le=REPLICAS_MAX)]
    copy_bytes_per_second: Annotated[int, Meta(ge=0)]
    gateway_traffic_max: Annotated[int, Meta(ge=0)]
    hot_topic_messages: Annotated[int, Meta(ge=0)]


class Insecure(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an operator says is meant, though it is open to other machines."""

    plain_text: bool
    no_sign_in: bool


class Node(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One process: which role it plays, where its data lies, how many gateways it runs."""

    role: Literal["all", "store", "gateway"]
    data: Annotated[str, Meta(min_length=1)]
    io_uring: bool
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)]
    admin: Listener
    management: Listener
    store: Listener
    mesh: Listener
    tls: Tls
    insecure: Insecure
    key_file: str | None
    metering: Metering
    metrics: Metrics
    memory: Memory
    cluster: Cluster


class Tenant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One tenant: the name each protocol has for it (an account, a virtual host, a namespace). A
    protocol that is not named calls it by its own name (gateway/config/tenants.py).
    """

    known_as: dict[str, str] = {}


Allowed = Annotated[int, Meta(ge=1, le=LIMIT_MAX)] | None
"""A limit; null: there is none."""


class TrafficLimits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits that all have, each a second."""

    published_messages: Allowed = None
    published_bytes: Allowed = None
    delivered_messages: Allowed = None
    delivered_bytes: Allowed = None


class TopicLimits(TrafficLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of a topic."""

    stored_messages: Allowed = None
    stored_bytes: Allowed = None


class ClientLimits(TrafficLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of a user or a listener, each a second but for the last two."""

    requests: Allowed = None
    connections: Allowed = None
    message_bytes: Allowed = None


class TenantLimits(ClientLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of a tenant."""

    topics: Allowed = None
    groups: Allowed = None
    stored_messages: Allowed = None
    stored_bytes: Allowed = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be used, by whom (gateway/config/limits.py)."""

    tenants: dict[str, TenantLimits] = {}
    users: dict[str, ClientLimits] = {}
    topics: dict[str, TopicLimits] = {}
    listeners: dict[str, ClientLimits] = {}


class NamesSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How names join the protocols: aliases of topics, and who takes part in the topic tree."""

    aliases: dict[str, str] = {}
    tree: dict[str, bool] = {}


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything an operator can set, after the merge and all checks."""

    node: Node
    tenants: dict[str, Tenant]
    limits: Limits
    names: NamesSettings
    protocols: dict[str, Protocol]

    def open_listeners(self) -> dict[Path, Listener]:
        """Return every address this process will bind, by the path of its listener."""
        found: dict[Path, Listener] = {}
        if self.node.role != "store":
            found = {
                ("protocols", protocol, "listeners", name): listener
                for protocol, settings in self.protocols.items()
                for name, listener in settings.open_listeners().items()
            }
        if self.node.admin.enabled:
            found["node", "admin"] = self.node.admin
        if self.node.management.enabled and self.node.role != "store":
            found["node", "management"] = self.node.management
        if self.node.role == "store":
            found["node", "store"] = self.node.store
        if self.node.role == "gateway":
            found["node", "mesh"] = self.node.mesh
        return found


def _option(options: dict[str, Scalar], name: str, kind: type[_Kind]) -> _Kind:
    value = options[name]
    # `type() is`, because True is an int and a flag read as a number would be 0 or 1.
    if type(value) is not kind:
        raise TypeError(f"option {name!r} is {type(value).__name__}, read as {kind.__name__}")
    return value
