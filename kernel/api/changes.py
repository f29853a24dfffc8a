"""Changes of definitions, as `Client.administer` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import GroupOptions, Route, RouterOptions, TopicOptions
from .session import Session


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Create a topic, or change the options and groups of an existing one.

    `must_be_new`: ALREADY_EXISTS if the name is taken. `groups` are created or changed, none is
    removed. Returns `TopicInfo`. INVALID_ARGUMENT for a new name that is reserved, and for options
    outside their bounds.
    """

    tenant: str
    name: str
    options: TopicOptions
    groups: Mapping[str, GroupOptions]
    session: Session | None = None
    """Required for transient topics: the session they are bound to if they have an owner."""
    must_be_new: bool = False
    reserved_name: bool = False
    """The server itself makes it: a new name may begin with one of `RESERVED_PREFIXES`. Never for
    a name that a client chose."""


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, its messages, groups and every route to it; its consumers hear NOT_FOUND.

    Returns the number of messages that were ready. Errors: NOT_FOUND; IN_USE by the conditions.
    """

    tenant: str
    name: str
    if_unused: bool = False
    if_empty: bool = False


@dataclass(frozen=True, slots=True)
class ResizeTopic:
    """Have so many queues of a topic take messages: its old ones are sealed, and go once they are
    consumed. `by_key`: it is known that only messages of a key keep their order then, where the
    topic has had one queue for all of them. `spread`: evenly over all Raft groups, whichever it has
    been in; also with as many queues as it has. Returns `TopicInfo`. Errors: NOT_FOUND;
    NOT_ALLOWED, the topic keeps the queues it has, and why; INVALID_ARGUMENT; IN_USE, try again
    later.
    """

    tenant: str
    name: str
    queues: int
    by_key: bool = False
    spread: bool = False


@dataclass(frozen=True, slots=True)
class PurgeTopic:
    """Drop every ready message of the group addressed; returns their number. Leased ones stay."""

    tenant: str
    name: str
    group: str
    in_flight: bool = False
    """Drop the leased ones too, and forget the deduplication window. Not with `before_ms`."""
    before_ms: int | None = None
    """Only what was stored before this time (ms since the epoch, see `Client.offset_since`)."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Remove a group from a topic; what it alone still held is let go. Errors: NOT_FOUND; IN_USE
    for the built-in group of a work topic.
    """

    tenant: str
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class PutRouter:
    """Create a router or change it. Returns `RouterInfo`."""

    tenant: str
    name: str
    options: RouterOptions
    must_be_new: bool = False
    reserved_name: bool = False
    """As for `PutTopic`."""


@dataclass(frozen=True, slots=True)
class DeleteRouter:
    """Delete a router and the routes from and to it. Errors: NOT_FOUND, IN_USE (it has routes)."""

    tenant: str
    name: str
    if_unused: bool = False


@dataclass(frozen=True, slots=True)
class PutRoute:
    """Add a route (idempotent). Errors: NOT_FOUND names the router or target that is missing."""

    tenant: str
    router: str
    route: Route


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Remove a route (idempotent)."""

    tenant: str
    router: str
    route: Route


@dataclass(frozen=True, slots=True)
class PutRecord:
    """Set or (value None) remove a metadata record: users, policies, nodes. The kernel does not
    look inside. Returns its new version; ALREADY_EXISTS if `expected` is not its version now.
    """

    key: str
    value: bytes | None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class StartMove:
    """Move the messages that are ready now in a group of topic `name` to another topic, each as a
    new message; without a destination back to the topic that it was a dead letter of.

    Returns the task's id; what becomes of it stands in its record (`moves.tasks`). Errors:
    NOT_FOUND; IN_USE (a task runs for the topic); LIMIT_EXCEEDED; INVALID_ARGUMENT.
    """

    tenant: str
    name: str
    group: str
    destination: str | None = None
    per_second: int | None = None
    """At most so many messages, 1 to `kernel.api.moves.PER_SECOND_MAX`, which is the default."""
    back_to: tuple[str, ...] | None = None
    """Without a destination: the topics that whoever asks may write to. What was a dead letter of
    another stays, and ends the task. None: of any."""
    messages_max: int | None = None
    """At most so many messages in all, from 1 on; None: as many as are ready now."""


@dataclass(frozen=True, slots=True)
class CancelMove:
    """End a task; what was moved stays moved. Returns how many messages these are, once the record
    says so on disk. Errors: NOT_FOUND; NOT_ALLOWED (it does not run any more).
    """

    tenant: str
    name: str
    task: str


Named = (
    PutTopic
    | DeleteTopic
    | PurgeTopic
    | DeleteGroup
    | PutRouter
    | DeleteRouter
    | PutRoute
    | DeleteRoute
    | StartMove
    | CancelMove
    | ResizeTopic
)
"""Changes of a thing that has a tenant and a name."""

Administration = Named | PutRecord


def name_of(change: Named) -> str:
    """Name of the topic or router that is changed."""
    return change.router if isinstance(change, PutRoute | DeleteRoute) else change.name
