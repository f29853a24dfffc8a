"""Moving messages from topic to topic, dead letters among them, over HTTP.

    GET, POST /topics/TOPIC/moves       DELETE /topics/TOPIC/moves/TASK
    GET       /dead-letters?topic=&after=&limit=

Each takes ?tenant=NAME (`tenants`).

A task is the kernel's (`kernel.api.moves`): at most 500 messages a second, one task a topic, each
message moved once, also across restarts and leaders. SQS's StartMessageMoveTask is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from gateway.admin.http.requests import answer, page_of, path_name, read_body
from gateway.admin.resources.topics import find_topic, options_of, topic_named
from kernel.api.client import CancelMove, StartMove
from kernel.api.model import DEFAULT_GROUP
from kernel.api.moves import PER_SECOND_MAX, PREFIX, MoveState, tasks
from kernel.common.errors import Code, KernelError
from kernel.common.limits import RESERVED_PREFIXES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.api.moves import MoveTask


class MoveNew(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `to` each message goes back to the topic that it was a dead letter of."""

    to: str | None = None
    group: str = DEFAULT_GROUP
    """Whose ready messages; they are gone for this group alone."""
    limit: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    """At most so many; without it all that are ready now."""
    per_second: Annotated[int, Meta(ge=1, le=PER_SECOND_MAX)] | None = None


class MoveShown(Struct, frozen=True, kw_only=True):
    """A task. `state`: running, completed, cancelled or failed; `failure`: why."""

    id: str
    topic: str
    group: str
    to: str | None
    per_second: int
    state: str
    failure: str | None
    to_move: int
    moved: int
    started_ms: int


class MoveList(Struct, frozen=True):
    """The newest first."""

    moves: list[MoveShown]


class MoveStarted(Struct, frozen=True):
    id: str


class MoveCancelled(Struct, frozen=True):
    """What was moved stays moved."""

    moved: int


class WaitingIn(Struct, frozen=True):
    """Messages of a group that are ready."""

    group: str
    ready: int


class DeadLettersOf(Struct, frozen=True):
    """A group whose dead letters go there."""

    topic: str
    group: str


class DeadLetterTopic(Struct, frozen=True, kw_only=True):
    """A topic of dead letters."""

    name: str
    sources: list[DeadLettersOf]
    waiting: list[WaitingIn]
    """By the topic's own groups; none if it does not exist."""
    exists: bool
    moving: MoveShown | None
    """The task that empties it now."""


class DeadLetterPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    dead_letters: list[DeadLetterTopic]
    next: str | None


class MoveRoutes:
    """Handlers of moves and dead letters."""

    def __init__(self, client: Client, tenants: KnownTenants) -> None:
        self._client = client
        self._tenants = tenants

    async def list_moves(self, request: Request) -> Response:
        """Tasks that move messages of a topic: the last ten."""
        topic = await find_topic(self._client, self._tenants.of(request), request)
        return answer(MoveList([_shown(each) for each in self._tasks(topic.tenant, topic.name)]))

    async def start_move(self, request: Request) -> Response:
        """Begin to move what is ready in a group; the task goes on by itself."""
        asked = await read_body(request, MoveNew)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        options_of(topic, asked.group)
        if asked.to is not None:
            _check_destination(topic, asked.to)
            await topic_named(self._client, topic.tenant, asked.to)
        change = StartMove(
            topic.tenant,
            topic.name,
            asked.group,
            asked.to,
            asked.per_second,
            messages_max=asked.limit,
        )
        return answer(MoveStarted(str(await self._client.administer(change))), 201)

    async def cancel_move(self, request: Request) -> Response:
        """End a task that runs; says how many messages it has moved."""
        topic = await find_topic(self._client, self._tenants.of(request), request)
        change = CancelMove(topic.tenant, topic.name, path_name(request, "task"))
        moved = await self._client.administer(change)
        assert isinstance(moved, int)
        return answer(MoveCancelled(moved))

    async def list_dead_letters(self, request: Request) -> Response:
        """Topics of dead letters by name: whose they are, what waits, and what moves."""
        _, after, limit = page_of(request)
        tenant, only = self._tenants.of(request), request.query_params.get("topic")
        sources: dict[str, list[DeadLettersOf]] = {}
        for topic in self._client.topics(tenant):
            for name, options in topic.groups.items():
                target = options.dead_letter
                if target is None or target.router is not None or target.key is None:
                    continue  # by way of a router it may be any
                if target.key > after and only in {None, topic.name, target.key}:
                    sources.setdefault(target.key, []).append(DeadLettersOf(topic.name, name))
        names = sorted(sources)
        rows = [await self._row(tenant, name, sources[name]) for name in names[:limit]]
        return answer(DeadLetterPage(rows, names[limit - 1] if len(names) > limit else None))

    async def _row(self, tenant: str, name: str, sources: list[DeadLettersOf]) -> DeadLetterTopic:
        await self._client.load(tenant, topics=(name,), routers=())
        topic = self._client.topic(tenant, name)
        waiting: list[WaitingIn] = []
        if topic is not None:
            for group in sorted(topic.groups):
                figures = await self._client.statistics(topic, group)
                waiting.append(WaitingIn(group, figures.ready))
        running = [each for each in self._tasks(tenant, name) if each.state is MoveState.RUNNING]
        return DeadLetterTopic(
            name=name,
            sources=sorted(sources, key=lambda each: (each.topic, each.group)),
            waiting=waiting,
            exists=topic is not None,
            moving=_shown(running[0]) if running else None,
        )

    def _tasks(self, tenant: str, name: str) -> list[MoveTask]:
        return tasks(self._client.records(PREFIX), tenant, name)


def _check_destination(topic: TopicInfo, name: str) -> None:
    """Raise KernelError INVALID_ARGUMENT for where nobody may move messages to."""
    if name == topic.name:
        raise KernelError(Code.INVALID_ARGUMENT, f"{name} is where they are")
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            text = f"names that begin with {prefix} are reserved"
            raise KernelError(Code.INVALID_ARGUMENT, text)


def _shown(task: MoveTask) -> MoveShown:
    return MoveShown(
        id=task.id,
        topic=task.source,
        group=task.group,
        to=task.destination,
        per_second=task.per_second or PER_SECOND_MAX,
        state=task.state.value,
        failure=task.failure.value if task.failure is not None else None,
        to_move=task.to_move,
        moved=task.moved,
        started_ms=task.started_ms,
    )
