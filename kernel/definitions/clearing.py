"""Routes to what is gone: the leader of each router's group removes its own.

    topic or router deleted at the leader of its name's home
        -> routes led here: removed
        -> every other group: CLEAR (what is gone, as of which index) -> its leader waits until
           what it knows of that home has come so far, then removes them

Whoever removes looks first whether the thing has been made again, so that a late question spares
the routes of the new one: these are made only where the new one is known. A route that is decided
just behind such a question is looked at by whoever has made it (`administration`). If the leader
that deletes dies before it asks, the next one does (`repairing`).

Nobody has to wait for a turn here, else two routers that lead to each other could not be deleted at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from ..api.client import DeleteRoute
from ..api.model import Route
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.placement import home_group
from ..requests.peer_stores import Gone, Kind, PeerStores
from ..routing.topology import Topology
from ..store.node import Store

AT_ONCE = 64
"""Routes that are removed together: as many commands as share an entry easily."""

REACHED_SECONDS = 2.5
"""A question waits so long for what is known of another group; then it is asked again."""

Touched = dict[RaftGroup, int]
"""Indexes of groups led elsewhere at which look-ups show a change."""


class Clearing:
    """Removes routes that lead to what is gone."""

    def __init__(
        self,
        store: Store,
        topology: Topology,
        exists: Callable[[str, Kind, str], bool],
        target_gone: Callable[[str, str, str], Awaitable[None]],
        delete_route: Callable[[DeleteRoute, Touched], Awaitable[object]],
    ) -> None:
        """`exists` says whether a thing is known here; `target_gone` removes what this process has
        of routes in its memory; `delete_route` deletes a route of a router whose group is led here,
        and the router if that was the last use of it.
        """
        self._store = store
        self._topology = topology
        self._exists = exists
        self._target_gone = target_gone
        self._delete_route = delete_route
        self._under_way: dict[tuple[str, Kind, str], asyncio.Future[Touched]] = {}
        """What is being removed, and what that has touched: a question may come again."""
        self.peer_stores: PeerStores | None = None

    async def everywhere(self, tenant: str, kind: Kind, name: str, touched: Touched) -> None:
        """Remove all routes to something that is gone. Raises KernelError UNAVAILABLE: of some
        group nobody knows.
        """
        await self._target_gone(tenant, kind, name)
        home = self._home(tenant, name)
        gone = Gone(tenant, kind, name, home, self._store.replica(home).defined)
        await self._remove(gone, self._led(), touched)
        elsewhere = [each for each in self._store.home_groups if self._store.serving(each) is None]
        if not elsewhere:
            return
        if self.peer_stores is None:
            raise KernelError(Code.NOT_LEADER, "this node does not lead every group")
        asked = (self.peer_stores.clear(each, gone) for each in elsewhere)
        for found in await asyncio.gather(*asked):
            touch(touched, found)

    async def here(self, group: RaftGroup, gone: Gone) -> Touched:
        """Remove the routes of a group that is led here."""
        touched: Touched = {}
        try:
            async with asyncio.timeout(REACHED_SECONDS):
                if self.peer_stores is None:
                    await self._store.consensus.awaited.reached(gone.home, gone.index)
                else:
                    await self.peer_stores.reached({gone.home: gone.index})
        except TimeoutError:
            raise KernelError(Code.TIMEOUT, "this store is behind the other one") from None
        await self._remove(gone, {group}, touched)
        return touched

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return home_group(self._store.home_groups, tenant, name)

    def _led(self) -> set[RaftGroup]:
        return {each for each in self._store.home_groups if self._store.serving(each) is not None}

    async def _remove(self, gone: Gone, groups: set[RaftGroup], touched: Touched) -> None:
        """Remove routes of routers in these groups, as far as they are led here."""
        key = gone.tenant, gone.kind, gone.name
        while key in self._under_way:
            touch(touched, await asyncio.shield(self._under_way[key]))
        done = self._under_way[key] = asyncio.get_running_loop().create_future()
        found: Touched = {}
        try:
            await self._remove_all(gone, groups, found)
        finally:
            del self._under_way[key]
            done.set_result(found)
        touch(touched, found)

    async def _remove_all(self, gone: Gone, groups: set[RaftGroup], touched: Touched) -> None:
        routes = [
            each
            for each in self._topology.routes_to(gone.tenant, gone.kind, gone.name)
            if self._home(gone.tenant, each[0]) in groups
        ]
        for start in range(0, len(routes), AT_ONCE):
            some = routes[start : start + AT_ONCE]
            await asyncio.gather(*(self._remove_one(gone, *each, touched) for each in some))

    async def _remove_one(self, gone: Gone, router: str, route: Route, touched: Touched) -> None:
        if self._exists(gone.tenant, gone.kind, gone.name):
            return  # it has been made again
        try:
            await self._delete_route(DeleteRoute(gone.tenant, router, route), touched)
        except KernelError as error:
            if error.code is not Code.NOT_FOUND:  # the router is gone as well
                raise


def touch(touched: Touched, more: Mapping[RaftGroup, int]) -> None:
    """Take over later indexes."""
    for group, index in more.items():
        touched[group] = max(index, touched.get(group, 0))
