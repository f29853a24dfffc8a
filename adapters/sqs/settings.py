"""The settings of the SQS adapter: what an operator can set, and the bounds nobody can.

Field names are those of protocols.yaml (`protocols.sqs.limits` and `.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from auth.principal import DEFAULT_TENANT, SignInMode

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ACCOUNT: Final = "000000000000"
"""Account of the tenant `default` (docs/design/model.md#topics-and-queues)."""

HEAD_BYTES_MAX: Final = 64 * 1024
"""Request line and headers: a signed request of an SDK has 1 KiB, a pre-signed batch in the query
string may have 60."""

REQUEST_S_MAX: Final = 30
"""From the first byte of a request, or of a connection, to the last of the request: a client that
stalls holds a socket and up to 4 MiB."""

RECEIVE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Stored bytes in one answer to ReceiveMessage, but for its first message: ten messages of SQS's
own limit fit, and so does the largest message of another protocol."""

PUBLISH_BYTES_MAX: Final = 1024 * 1024
"""Requests of one turn of the event loop share a kernel batch up to this size."""

DEDUPLICATION_MS: Final = 300_000
"""The window of a FIFO queue (SQS Developer Guide, "message deduplication ID")."""

PURGE_INTERVAL_MS: Final = 60_000
DELETED_RECENTLY_MS: Final = 60_000
"""AWS's waits after PurgeQueue, and after DeleteQueue before the name may be used again."""

DEAD_LETTER_HOPS_MAX: Final = 16
"""Queues in a row whose dead letters go to the next one: longer than anybody's, and a bound on
what a new RedrivePolicy looks at."""

RECENT_MAX: Final = 10_000
"""Purges, deletions of queues and deletions of FIFO messages remembered, each; the oldest go."""

FIRST_RECEIVES_MAX: Final = 10_000
"""Messages whose first receive is remembered for ApproximateFirstReceiveTimestamp: 1.5 MB."""

CALLERS_MAX: Final = 4_096
"""Callers kept from one request to the next: about one per program and region."""

QUEUES_KEPT_MAX: Final = 10_000
"""Queues kept in the form requests need them in."""


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """See protocols.yaml for the defaults and their reasons."""

    sign_in: SignInMode = SignInMode.VERIFY
    connections_max: int = 10_000
    """Open connections, of which each may be a long poll."""
    idle_timeout_s: int = 75
    """A connection without a request for so long is closed: longer than SDKs keep theirs (60)."""
    deleted_recently: bool = False
    """Refuse a queue's name for 60 s after its deletion, as AWS does."""
    queue_count: int = 1
    """Kernel queues of a new SQS queue; more than one keep order per message group only."""
    accounts: Mapping[str, str] = field(default_factory=lambda: {DEFAULT_TENANT: DEFAULT_ACCOUNT})
    """Account by tenant; a tenant without one is its own account."""
    advertised: Mapping[str, str] = field(default_factory=dict)
    """Base of queue URLs (`https://queues.example.org`) by listener; else the request's Host."""
