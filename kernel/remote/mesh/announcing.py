"""Tells other processes what lives in the memory of this one.

    something changes -> its key, for each hearer -> ANNOUNCE: what the keys stand for now
                                                     (one at a time to each hearer)

What changes again before it is told is told once. A hearer that comes is told everything. Whoever
makes something waits until all hearers have taken it (`taken`), so that a client that was answered
finds it at every gateway; a hearer that has not answered within TAKEN_SECONDS is not waited for: it
is cut off, or stopped, and learns of it before anything else once it goes on.

Bound: ANNOUNCED_MAX things in all; `full` says when one more must be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator

import msgspec

from ...broker.group_state.state import GroupState
from ...common.errors import Code, KernelError
from ...common.ids import TopicId
from ...routing.tree_routes import TreeRoutes
from ...rpc.channel import Channel
from .. import things
from ..leader_calls.call_wire import WireError, decode
from . import mesh_wire as wire
from .remote_memory import ANNOUNCED_MAX
from .remote_process import Key

TAKEN_SECONDS = 2.0
"""Longer than a pause of a garbage collection, shorter than clients wait for an answer."""

ANNOUNCE_MS = 10_000
"""A hearer that has not answered for so long has lost its place: its connection is closed."""

AGAIN_SECONDS = 0.05
"""Before something is told again for which there was no room on the connection."""


class _Hearer:
    """A process that is told."""

    __slots__ = ("begun", "changed", "covers", "is_due", "is_whole", "taken", "under_way")

    def __init__(self, changed: dict[Key, None]) -> None:
        self.changed = changed
        """What is to be told, in the order in which it changed."""
        self.begun = False
        self.is_whole = False
        """Everything has been told once."""
        self.under_way = False
        """An announcement is unanswered."""
        self.is_due = False
        """It is looked at in this turn of the loop, or soon."""
        self.covers = 0
        """Number of the change up to which the announcement under way tells everything."""
        self.taken = 0
        """And up to which the hearer has taken it."""


class AnnouncingFigures:
    """Counters since this process began."""

    __slots__ = ("late", "refused", "told")

    def __init__(self) -> None:
        self.told = 0
        """Things told, to each hearer."""
        self.late = 0
        """Hearers that were not waited for any longer."""
        self.refused = 0
        """Refused at ANNOUNCED_MAX."""


class Announcer:
    """Tells other processes what lives in this one, and what changes of it."""

    def __init__(
        self,
        state: GroupState,
        tree: TreeRoutes,
        routers_elsewhere: Container[tuple[str, str]],
        *,
        announced_max: int = ANNOUNCED_MAX,
    ) -> None:
        """`state`: of the transient group; `routers_elsewhere`: (tenant, name) of each router that
        lives in the memory of another process.
        """
        self._state = state
        self._tree = tree
        self._routers_elsewhere = routers_elsewhere
        self._announced_max = announced_max
        self._loop = asyncio.get_running_loop()
        self._hearers: dict[Channel, _Hearer] = {}
        self._number = 0
        """Counts changes."""
        self._routes = 0
        """That live here."""
        self._waiting: dict[asyncio.Future[None], int] = {}
        """Who waits until a change has been taken."""
        self.conflict: Callable[[str, str, str], None] = lambda _kind, _tenant, _name: None
        """Told of a name of a "topic" or "router" that is another process's, too."""
        self.figures = AnnouncingFigures()
        self._tree.watch_changed = self.watch_changed

    @property
    def announced(self) -> int:
        """How many things that live here others are told of."""
        state = self._state
        return len(state.topic_names) + len(state.routers) + self._routes + len(self._tree.watched)

    def check_room(self) -> None:
        """Raises KernelError LIMIT_EXCEEDED if one more cannot be told of."""
        if self.announced >= self._announced_max:
            self.figures.refused += 1
            message = f"{self._announced_max} things live in this process (announced_max)"
            raise KernelError(Code.LIMIT_EXCEEDED, message)

    # --- Hearers ----------------------------------------------------------------------------

    def opened(self, channel: Channel) -> None:
        """A process can be told."""
        self._hearers[channel] = hearer = _Hearer(dict.fromkeys(self._everything()))
        self._soon(channel, hearer)

    def closed(self, channel: Channel) -> None:
        """It cannot be told any more."""
        self._hearers.pop(channel, None)
        self._look_who_waits()

    def _everything(self) -> Iterator[Key]:
        for tenant, name in self._state.topic_names:
            yield "topic", tenant, name
        for (tenant, name), router in self._state.routers.items():
            yield "router", tenant, name
            for route in router.routes:
                yield "route", tenant, name, route
        for tenant, pattern in self._tree.watched:
            yield "watch", tenant, pattern

    # --- What changes -----------------------------------------------------------------------

    def changed(self, *keys: Key) -> None:
        """Things have come, changed or gone here."""
        self._number += len(keys)
        for channel, hearer in self._hearers.items():
            hearer.changed.update(dict.fromkeys(keys))
            self._soon(channel, hearer)

    def watch_changed(self, tenant: str, pattern: str) -> None:
        """The first live route of a pattern has come, or the last one gone."""
        self.changed(("watch", tenant, pattern))

    def route_count_changed(self, by: int) -> None:
        """So many more routes live here."""
        self._routes += by

    async def taken(self) -> None:
        """Return once every hearer has taken what has changed until now, or is late."""
        if all(each.taken >= self._number for each in self._hearers.values()):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = number = self._number
        try:
            async with asyncio.timeout(TAKEN_SECONDS):
                await future
        except TimeoutError:
            self.figures.late += sum(each.taken < number for each in self._hearers.values())
        finally:
            del self._waiting[future]

    def _look_who_waits(self) -> None:
        if self._waiting:
            taken = min((each.taken for each in self._hearers.values()), default=self._number)
            for future, number in self._waiting.items():
                if number <= taken and not future.done():
                    future.set_result(None)

    # --- Telling ----------------------------------------------------------------------------

    def _soon(self, channel: Channel, hearer: _Hearer) -> None:
        if not hearer.is_due and not hearer.under_way:
            hearer.is_due = True
            self._loop.call_soon(self._tell, channel, hearer)

    def _tell(self, channel: Channel, hearer: _Hearer) -> None:
        hearer.is_due = False
        if self._hearers.get(channel) is not hearer or hearer.under_way:
            return
        if not hearer.changed and hearer.is_whole:
            hearer.taken = self._number
            self._look_who_waits()
            return
        told, items = self._page(hearer)
        left = len(hearer.changed) - len(told)
        flags = (0 if hearer.begun else wire.BEGINS) | (
            wire.WHOLE if not left and not hearer.is_whole else 0
        )
        try:
            channel.call(
                wire.ANNOUNCE,
                wire.encode((flags, items)),
                lambda answer: self._answered(channel, hearer, answer),
                ANNOUNCE_MS,
            )
        except KernelError:
            hearer.is_due = True
            self._loop.call_later(AGAIN_SECONDS, self._tell, channel, hearer)
            return
        for key in told:
            del hearer.changed[key]
        hearer.begun, hearer.under_way = True, True
        hearer.is_whole = hearer.is_whole or not left
        if not left:
            hearer.covers = self._number
        self.figures.told += len(items)

    def _page(self, hearer: _Hearer) -> tuple[list[Key], list[msgspec.Raw]]:
        told: list[Key] = []
        items: list[msgspec.Raw] = []
        size = 0
        for key in hearer.changed:
            if size >= wire.PAGE_BYTES or len(items) >= wire.PAGE_ITEMS:
                break
            told.append(key)
            item = wire.encode_item(self._item(key))
            items.append(item)
            size += len(bytes(item))
        return told, items

    def _item(self, key: Key) -> wire.Item:
        """What a key stands for now."""
        state, tenant, name = self._state, key[1], key[2]
        if key[0] == "topic":
            ident: TopicId | None = state.topic_names.get((tenant, name))
            if ident is None:
                return wire.TopicGone(tenant, name)
            return things.TopicIs(state.topics[ident].info())
        router = state.routers.get((tenant, name))
        if len(key) == 4:
            there = router is not None and key[3] in router.routes
            return (wire.RouteIs if there else things.RouteGone)(tenant, name, key[3])
        if key[0] == "router":
            # Half of one that lives elsewhere is not told of, only the routes that it has here.
            elsewhere = (tenant, name) in self._routers_elsewhere
            if router is None or router.options.durable or elsewhere:
                return things.RouterGone(tenant, name)
            return things.RouterIs(tenant, name, router.options)
        watched = (tenant, name) in self._tree.watched
        return (wire.WatchIs if watched else wire.WatchGone)(tenant, name)

    def _answered(self, channel: Channel, hearer: _Hearer, answer: bytes | KernelError) -> None:
        hearer.under_way = False
        if self._hearers.get(channel) is not hearer:
            return
        if isinstance(answer, KernelError):
            channel.close(f"what was announced has not been taken: {answer.message}")
            return
        try:
            others = decode(wire.conflicts, answer)
        except WireError as error:
            channel.close(f"an answer to what was announced is none: {error}")
            return
        hearer.taken = hearer.covers
        for kind, tenant, name in others:
            self.conflict(kind, tenant, name)
        self._look_who_waits()
        if hearer.changed:
            self._soon(channel, hearer)
