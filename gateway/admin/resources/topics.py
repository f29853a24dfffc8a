"""Topics and their consumer groups over HTTP.

GET    /topics?prefix=&search=&type=&sort=&after=&limit=     POST   /topics
GET    /topics/TOPIC                           PATCH  /topics/TOPIC
DELETE /topics/TOPIC?if_unused=&if_empty=      POST   /topics/TOPIC/purge, /topics/TOPIC/resize
PUT, DELETE /topics/TOPIC/size                 it grows and shrinks by itself
GET    /groups?topic=&after=&limit=            POST   /topics/TOPIC/groups
GET, PATCH, DELETE /topics/TOPIC/groups/GROUP

Each takes ?tenant=NAME (`tenants`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.admin.http.requests import answer, flag, nothing, page_of, path_name, read_body
from gateway.admin.resources import topic_shapes as shapes
from gateway.admin.resources.tenants import of_tenant
from gateway.admin.resources.topic_listing import TopicListing, Wanted
from gateway.admin.resources.topic_size_changes import known_size, put_size, remove_size
from gateway.admin.resources.topic_trace_changes import known_mode
from kernel.api.client import (
    DeleteGroup,
    DeleteTopic,
    PurgeTopic,
    PutTopic,
    ResizeTopic,
)
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo
from kernel.common.errors import Code, KernelError
from kernel.definitions.sizes import Size, queues_for, size_of_class
from kernel.definitions.topic_sizes import Above, TopicSize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Adapter
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.admin.resources.declared_shapes import DeclaredShapes
    from gateway.admin.resources.tenants import KnownTenants
    from kernel.api.client import Client
    from kernel.common.ports import Clock


class TopicPage(Struct, frozen=True):
    """`next`: what `after` is for the next page; null at the end."""

    topics: list[shapes.TopicShown]
    next: str | None
    total: int
    """Topics that match, on all pages."""


class GroupPage(Struct, frozen=True):
    """Pages go by topic: a page holds every group of the topics it reaches."""

    groups: list[shapes.GroupShown]
    next: str | None


class PurgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`in_flight`: the leased messages too. `older_ms`: only what was stored so long ago."""

    group: str = DEFAULT_GROUP
    in_flight: bool = False
    older_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class Purged(Struct, frozen=True):
    messages: int


class SizeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be published a second: messages, bytes, or both. 0: that figure does not count."""

    messages: Annotated[float, Meta(ge=0)] = 0.0
    bytes: Annotated[float, Meta(ge=0)] = 0.0


class ResizeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Either `queues`, or a `size`: as many queues as that takes now; figures, or the name of a
    class (small, medium, large). `by_key`: it is known that messages without a key have no order in
    a topic of several queues; asked for of one that has had one queue. `spread`: evenly over all
    Raft groups.
    """

    queues: Annotated[int, Meta(ge=1, le=256)] | UnsetType = UNSET
    by_key: bool = False
    spread: bool = False
    size: str | SizeFields | UnsetType = UNSET


class SizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which size to which the topic is to be: as many queues as its use takes, by itself. Both
    with the same figures, or names of classes; the same one twice: it keeps that size. `by_key`,
    `spread`: of each resize, as above. `above`: whether publishers above the largest one are
    served, wait, or fail at once.
    """

    min: str | SizeFields
    max: str | SizeFields
    by_key: bool = False
    spread: bool = False
    above: Above = Above.SERVE


class TopicRoutes:
    """Handlers of topics and groups."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        tenants: KnownTenants,
        adapters: Sequence[Adapter],
        declared: DeclaredShapes,
        topics: TopicMetrics | None = None,
    ) -> None:
        """`topics`: None where topics are led in other processes."""
        self._client = client
        self._clock = clock
        self._tenants = tenants
        self._adapters = adapters
        self._declared = declared
        self._listing = TopicListing(client, declared, topics)

    # --- Topics -----------------------------------------------------------------------------

    async def list_topics(self, request: Request) -> Response:
        """Topics in the order of a column (`sort`: name, queues, groups, ready, leased; `-` before
        it: the largest first), without those that clients keep to themselves.
        """
        prefix, after, limit = page_of(request)
        wanted = Wanted(
            tenant=self._tenants.of(request),
            prefix=prefix,
            search=request.query_params.get("search", "").lower(),
            type=request.query_params.get("type"),
            sort=request.query_params.get("sort", "name"),
            after=after,
            limit=limit,
        )
        found = await self._listing.find(wanted)
        rows = [await self._row(topic) for topic in found.topics]
        return answer(TopicPage(rows, found.next, found.total))

    async def create_topic(self, request: Request) -> Response:
        """A new topic; 409 if the name is taken."""
        tenant = self._tenants.of(request)
        asked = await read_body(request, shapes.TopicNew)
        spelled = {each.name: each.spells(asked.name) for each in self._adapters}
        options, groups = shapes.new_topic(asked, self._declared, spelled)
        change = PutTopic(tenant, asked.name, options, groups, must_be_new=True)
        topic = await self._client.administer(change)
        assert isinstance(topic, TopicInfo)
        return answer(await self._details(topic), 201)

    async def show_topic(self, request: Request) -> Response:
        """One topic with its queues, groups and figures."""
        return answer(
            await self._details(await find_topic(self._client, self._tenants.of(request), request))
        )

    async def change_topic(self, request: Request) -> Response:
        """Change the settings given."""
        asked = await read_body(request, shapes.TopicFields)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        options = shapes.changed(topic.options, asked)
        changed = await self._client.administer(PutTopic(topic.tenant, topic.name, options, {}))
        assert isinstance(changed, TopicInfo)
        return answer(await self._details(changed))

    async def delete_topic(self, request: Request) -> Response:
        """Delete a topic; says how many messages were ready."""
        change = DeleteTopic(
            self._tenants.of(request),
            path_name(request, "topic"),
            if_unused=flag(request, "if_unused"),
            if_empty=flag(request, "if_empty"),
        )
        messages = await self._client.administer(change)
        assert isinstance(messages, int)
        return answer(Purged(messages))

    async def resize_topic(self, request: Request) -> Response:
        """Have so many queues take messages; those that are sealed go once they are consumed."""
        asked = await read_body(request, ResizeRequest)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        change = ResizeTopic(
            topic.tenant, topic.name, _queues_of(asked), asked.by_key, asked.spread
        )
        resized = await self._client.administer(change)
        assert isinstance(resized, TopicInfo)
        return answer(await self._details(resized))

    async def set_size(self, request: Request) -> Response:
        """Have a topic grow and shrink by itself, from one size to another, or keep one size."""
        asked = await read_body(request, SizeRequest)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        least, most = _size_of(asked.min), _size_of(asked.max)
        bounds = least.messages, least.bytes, most.messages, most.bytes
        size = TopicSize(topic.id, *bounds, asked.by_key, asked.spread, asked.above)
        return answer(await self._details(await put_size(self._client, topic, size)))

    async def remove_size(self, request: Request) -> Response:
        """Have a topic keep the queues it has, and bound nobody by its size."""
        topic = await find_topic(self._client, self._tenants.of(request), request)
        await remove_size(self._client, topic)
        return nothing()

    async def purge_topic(self, request: Request) -> Response:
        """Drop what a group has not consumed; says how many messages."""
        asked = await read_body(request, PurgeRequest)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        options_of(topic, asked.group)
        before_ms = None
        if asked.older_ms is not None:
            before_ms = max(0, self._clock.wall_ms() - asked.older_ms)
        change = PurgeTopic(topic.tenant, topic.name, asked.group, asked.in_flight, before_ms)
        messages = await self._client.administer(change)
        assert isinstance(messages, int)
        return answer(Purged(messages))

    # --- Groups -----------------------------------------------------------------------------

    async def list_groups(self, request: Request) -> Response:
        """Groups of one topic, or of all, by topic and name."""
        _, after, limit = page_of(request)
        tenant, only = self._tenants.of(request), request.query_params.get("topic")
        if only is not None:
            topic = await topic_named(self._client, tenant, only)
            return answer(GroupPage(await self._groups(topic), None))
        found = ((each.name, each) for each in self._client.topics(tenant))
        rows: list[shapes.GroupShown] = []
        for name, topic in sorted(
            (each for each in found if each[0] > after and not each[1].options.hidden),
            key=lambda each: each[0],
        ):
            if len(rows) >= limit:
                return answer(GroupPage(rows, after))
            rows += await self._groups(topic)
            after = name
        return answer(GroupPage(rows, None))

    async def create_group(self, request: Request) -> Response:
        """A new group on a topic; 409 if it has one of that name."""
        asked = await read_body(request, shapes.GroupNew)
        topic = await find_topic(self._client, self._tenants.of(request), request)
        if asked.name in topic.groups:
            raise KernelError(Code.ALREADY_EXISTS, f"{topic.name} has a group {asked.name}")
        options = shapes.new_group(asked, topic, self._declared)
        if asked.dead_letter is UNSET:
            await self._make_dead_letter_topic(topic.tenant, asked.name)
        return await self._put_group(topic, asked.name, options, 201)

    async def _make_dead_letter_topic(self, tenant: str, group: str) -> None:
        """Before the group that needs it, so that no dead letter finds none."""
        wanted = self._declared.groups.dead_letters(tenant, group)
        if wanted is None:
            return
        await self._client.load(tenant, topics=(wanted.name,), routers=())
        if self._client.topic(tenant, wanted.name) is None:
            await self._client.administer(wanted)

    async def show_group(self, request: Request) -> Response:
        """One group with its figures."""
        topic, name = await self._group_named(request)
        return answer(await self._group(topic, name))

    async def change_group(self, request: Request) -> Response:
        """Change the settings given."""
        asked = await read_body(request, shapes.GroupFields)
        topic, name = await self._group_named(request)
        options = shapes.changed_group(topic.groups[name], asked)
        return await self._put_group(topic, name, options, 200)

    async def delete_group(self, request: Request) -> Response:
        """Remove a group; what it alone held is let go."""
        topic, name = await self._group_named(request)
        await self._client.administer(DeleteGroup(topic.tenant, topic.name, name))
        return nothing()

    async def _group_named(self, request: Request) -> tuple[TopicInfo, str]:
        topic = await find_topic(self._client, self._tenants.of(request), request)
        name = path_name(request, "group")
        options_of(topic, name)
        return topic, name

    async def _put_group(
        self, topic: TopicInfo, name: str, options: GroupOptions, status: int
    ) -> Response:
        change = PutTopic(topic.tenant, topic.name, topic.options, {name: options})
        changed = await self._client.administer(change)
        assert isinstance(changed, TopicInfo)
        return answer(await self._group(changed, name), status)

    # --- Showing ----------------------------------------------------------------------------

    async def _row(self, topic: TopicInfo) -> shapes.TopicShown:
        figures = [await self._client.statistics(topic, name) for name in topic.groups]
        return shapes.TopicShown(
            name=topic.name,
            type=self._declared.type_of(topic),
            durable=topic.options.durable,
            queues=len(topic.queues),
            groups=len(topic.groups),
            ready=max((each.ready for each in figures), default=0),
            leased=sum(each.leased for each in figures),
            size=self._size(topic),
        )

    async def _details(self, topic: TopicInfo) -> shapes.TopicDetails:
        queues = []
        writable, regular = topic.writable, topic.regular
        for number, ref in zip(topic.numbers, topic.queues, strict=True):
            first, following = await self._client.span(topic, number)
            queues.append(
                shapes.QueueShown(
                    number=number,
                    raft_group=ref.group,
                    first_offset=first,
                    next_offset=following,
                    sealed=ref not in writable,
                    once=ref in writable and ref not in regular,
                )
            )
        return shapes.TopicDetails(
            name=topic.name,
            type=self._declared.type_of(topic),
            version=topic.version,
            hidden=topic.options.hidden,
            options=shapes.options_shown(topic.options),
            declared_by=sorted(topic.options.declarations),
            queues=queues,
            trace=known_mode(self._client, topic),
            size=self._size(topic),
            groups=await self._groups(topic),
            unspelled_by=[each.name for each in self._adapters if not each.spells(topic.name)],
        )

    def _size(self, topic: TopicInfo) -> shapes.SizeShown | None:
        size = known_size(self._client, topic)
        if size is None:
            return None
        now = size.of(len(topic.regular))
        return shapes.SizeShown(
            min=shapes.Figures(size.messages_min, size.bytes_min),
            max=shapes.Figures(size.messages_max, size.bytes_max),
            by_key=size.by_key,
            spread=size.spread,
            above=size.above,
            now=shapes.Figures(now.messages, now.bytes),
        )

    async def _groups(self, topic: TopicInfo) -> list[shapes.GroupShown]:
        return [await self._group(topic, name) for name in sorted(topic.groups)]

    async def _group(self, topic: TopicInfo, name: str) -> shapes.GroupShown:
        figures = await self._client.statistics(topic, name)
        age = None if figures.oldest_ms is None else self._clock.wall_ms() - figures.oldest_ms
        return shapes.GroupShown(
            topic=topic.name,
            name=name,
            ready=figures.ready,
            leased=figures.leased,
            delayed=figures.delayed,
            expired=figures.expired,
            oldest_age_ms=None if age is None else max(0, age),
            consumers=figures.consumers,
            options=topic.groups[name],
        )


async def find_topic(client: Client, tenant: str, request: Request) -> TopicInfo:
    """The topic of a tenant that a path names. Raises KernelError NOT_FOUND."""
    return await topic_named(client, tenant, path_name(request, "topic"))


async def topic_named(client: Client, tenant: str, name: str) -> TopicInfo:
    """A topic of a tenant. Raises KernelError NOT_FOUND."""
    await client.load(tenant, topics=(name,), routers=())
    topic = client.topic(tenant, name)
    if topic is None:
        raise KernelError(Code.NOT_FOUND, f"no topic {name}{of_tenant(tenant)}")
    return topic


def options_of(topic: TopicInfo, group: str) -> GroupOptions:
    """Settings of a group. Raises KernelError NOT_FOUND."""
    options = topic.groups.get(group)
    if options is None:
        raise KernelError(Code.NOT_FOUND, f"no group {group} on topic {topic.name}")
    return options


def _queues_of(asked: ResizeRequest) -> int:
    """How many queues are asked for. Raises KernelError INVALID_ARGUMENT: nothing, or two things;
    there is no such size.
    """
    if isinstance(asked.queues, int) == (asked.size is not UNSET):
        raise KernelError(Code.INVALID_ARGUMENT, "either queues or a size")
    if isinstance(asked.queues, int):
        return asked.queues
    assert not isinstance(asked.size, UnsetType)
    return queues_for(_size_of(asked.size))


def _size_of(asked: str | SizeFields) -> Size:
    """Figures, or those of a class. Raises KernelError INVALID_ARGUMENT: there is no such class."""
    if isinstance(asked, SizeFields):
        return Size(asked.messages, asked.bytes)
    return size_of_class(asked)
