"""Destinations of what is published to the topic tree: every route of every tenant, for look-ups.

Whatever is published under one name goes to one Raft group's reference lists, so that its order
holds; the same hash says where the name's retained message is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from zlib import crc32

from ..api.model import QueueRef, TopicInfo
from ..api.tree import WatchSink
from ..common.ids import RaftGroup
from ..common.limits import NAME_BYTES_MAX, TREE_CACHE_NAMES
from ..common.placement import home_group
from .destinations import Forwarder, Found
from .tree_table import PatternRoutes, TreeTable, check_name, check_pattern, is_pattern, is_reserved
from .watches import LocalWatch


class TreeRoutes:
    """Who wants a tree name, of every tenant."""

    def __init__(
        self,
        groups: Sequence[RaftGroup],
        changed: Callable[[], None],
        with_copies: Callable[[tuple[TopicInfo, ...]], tuple[TopicInfo, ...]],
    ) -> None:
        """`changed` is called when destinations handed out by `at_door` are stale; `with_copies`
        adds the topics that get copies of what is written to others.
        """
        self._with_copies = with_copies
        self._groups = list(groups)
        self._changed = changed
        self._tables: dict[str, TreeTable] = {}
        self._topics: dict[str, dict[str, TopicInfo]] = {}
        """Topics that are part of the tree, by tenant and name."""
        self._doors: dict[str, dict[str, Callable[[str], Sequence[TopicInfo]]]] = {}
        """Routers that are doors to the tree, by tenant and name: key to the topics they reach."""
        self._known: dict[tuple[str, str, bool], Found] = {}
        self._doors_asked = False
        self._lists: dict[tuple[str, str], list[QueueRef]] = {}
        self._watched: dict[tuple[str, str], int] = {}
        """Live routes of this process, by tenant and pattern."""
        self.watch_changed: Callable[[str, str], None] = lambda _tenant, _pattern: None
        """Told when the first live route of a (tenant, pattern) has come here, or the last gone."""
        self.leaders_match = False
        """Reference lists are looked up by the leaders of the names' groups (ADR 10), for which
        `lists_of` is."""

    def groups_of(self, tenant: str, pattern: str) -> list[RaftGroup]:
        """Raft groups that hold what is published under a pattern."""
        if is_pattern(pattern):
            return list(self._groups)
        return [self.group_of(tenant, pattern)]

    def group_of(self, tenant: str, name: str) -> RaftGroup:
        """Raft group that holds what is published to a name, and its retained message."""
        return home_group(self._groups, tenant, name)

    # --- Changes ----------------------------------------------------------------------------

    def forget(self) -> None:
        """A definition has changed: nothing remembered holds any more."""
        self._known.clear()

    def _routes_changed(self) -> None:
        self._known.clear()
        self._lists.clear()
        if self._doors_asked:
            self._doors_asked = False
            self._changed()

    def add_index(self, tenant: str, pattern: str, ref: QueueRef) -> None:
        """A reference list has been made."""
        routes = self._tables.setdefault(tenant, TreeTable()).make(pattern)
        routes.indexes = (*[each for each in routes.indexes if each.group != ref.group], ref)
        self._routes_changed()

    def remove_index(self, tenant: str, pattern: str, group: RaftGroup) -> None:
        """A reference list is gone."""
        table = self._tables.get(tenant)
        routes = table.find(pattern) if table is not None else None
        if table is not None and routes is not None:
            routes.indexes = tuple(each for each in routes.indexes if each.group != group)
            table.prune(pattern)
            self._routes_changed()

    def indexes_of(self, tenant: str, pattern: str) -> Sequence[QueueRef]:
        """The reference lists of a pattern."""
        table = self._tables.get(tenant)
        routes = table.find(pattern) if table is not None else None
        return routes.indexes if routes is not None else ()

    def watch(self, tenant: str, pattern: str, sink: WatchSink, tag: object) -> LocalWatch:
        """A live route. Raises KernelError INVALID_ARGUMENT."""
        check_pattern(pattern)
        watch = LocalWatch(tenant, pattern, sink, tag, self._unwatch)
        self.add_watch(tenant, pattern, watch)
        return watch

    def _unwatch(self, watch: LocalWatch) -> None:
        self.remove_watch(watch.tenant, watch.pattern, watch)

    def add_watch(self, tenant: str, pattern: str, watch: LocalWatch) -> None:
        """A live route has come."""
        routes = self._tables.setdefault(tenant, TreeTable()).make(pattern)
        routes.watches = (*routes.watches, watch)
        self._routes_changed()
        count = self._watched[tenant, pattern] = self._watched.get((tenant, pattern), 0) + 1
        if count == 1:
            self.watch_changed(tenant, pattern)

    def remove_watch(self, tenant: str, pattern: str, watch: LocalWatch) -> None:
        """A live route has gone."""
        table = self._tables.get(tenant)
        routes = table.find(pattern) if table is not None else None
        if table is not None and routes is not None and watch in routes.watches:
            routes.watches = tuple(each for each in routes.watches if each is not watch)
            table.prune(pattern)
            self._routes_changed()
            left = self._watched.pop((tenant, pattern)) - 1
            if left:
                self._watched[tenant, pattern] = left
            else:
                self.watch_changed(tenant, pattern)

    @property
    def watched(self) -> Collection[tuple[str, str]]:
        """(tenant, pattern) of the live routes of this process."""
        return self._watched.keys()

    def add_forwarder(self, tenant: str, pattern: str, forwarder: Forwarder) -> None:
        """Somebody carries on what is published under a pattern."""
        routes = self._tables.setdefault(tenant, TreeTable()).make(pattern)
        if forwarder not in routes.forwarders:
            routes.forwarders = (*routes.forwarders, forwarder)
            self._routes_changed()

    def remove_forwarder(self, tenant: str, pattern: str, forwarder: Forwarder) -> None:
        """It does not any more."""
        table = self._tables.get(tenant)
        routes = table.find(pattern) if table is not None else None
        if table is not None and routes is not None:
            routes.forwarders = tuple(each for each in routes.forwarders if each is not forwarder)
            table.prune(pattern)
            self._routes_changed()

    def put_topic(self, topic: TopicInfo) -> None:
        """A topic is new or has changed."""
        if topic.options.tree:
            self._topics.setdefault(topic.tenant, {})[topic.name] = topic
        else:
            self.remove_topic(topic)

    def remove_topic(self, topic: TopicInfo) -> None:
        """A topic is gone."""
        self._topics.get(topic.tenant, {}).pop(topic.name, None)

    def put_door(self, tenant: str, name: str, reach: Callable[[str], Sequence[TopicInfo]]) -> None:
        """A router is a door to the tree; `reach` tells the topics that a key takes there."""
        self._doors.setdefault(tenant, {})[name] = reach

    def remove_door(self, tenant: str, name: str) -> None:
        """A router is none any more."""
        self._doors.get(tenant, {}).pop(name, None)

    # --- Look-ups ---------------------------------------------------------------------------

    def to(self, tenant: str, name: str, *, retain: bool) -> Found:
        """Destinations of a publish to a name, whose messages carry it. Raises KernelError
        INVALID_ARGUMENT, NOT_ALLOWED.
        """
        key = (tenant, name, retain)
        found = self._known.get(key)
        if found is None:
            check_name(name)
            if len(self._known) >= TREE_CACHE_NAMES:
                self._known.clear()
            topics = {each.id: each for each in self._tree_topics(tenant, name)}
            for each in self._through_doors(tenant, name):
                topics[each.id] = each
            everything = self._with_copies(tuple(topics.values()))
            found = self._known[key] = self._found(tenant, name, everything, retain=retain)
        return found

    def _through_doors(self, tenant: str, name: str) -> list[TopicInfo]:
        """Topics that a name reaches by the routes of the tree's doors, whose keys are shorter."""
        if len(name.encode()) > NAME_BYTES_MAX:
            return []
        doors = self._doors.get(tenant, {}).values()
        return [topic for reach in doors for topic in reach(name)]

    def at_door(
        self, tenant: str, name: str, topics: Sequence[TopicInfo], *, but: str | None = None
    ) -> Found:
        """Destinations of a message that enters the tree from elsewhere with this name: what it
        reaches anyway, and the tree's routes, unless nobody publishes to such a name. `but`: a
        topic that it is written to already.
        """
        if is_pattern(name) or not name or is_reserved(name):
            return Found(tuple(topics))
        self._doors_asked = True
        reached = {each.id: each for each in topics}
        for topic in self._tree_topics(tenant, name):
            if topic.name != but:
                reached.setdefault(topic.id, topic)
        if but is not None:
            for topic in self._through_doors(tenant, name):
                reached.setdefault(topic.id, topic)
        found = self._found(tenant, name, tuple(reached.values()), retain=False)
        live = found.watches or found.forwarders
        if found.refs or live or found.routed_in is not None:
            found = Found(
                found.topics,
                refs=found.refs,
                watches=found.watches,
                forwarders=found.forwarders,
                routed_in=found.routed_in,
                tree_name=name,
                tenant=tenant,
                name=name.encode(),
            )
        return found

    def _found(
        self, tenant: str, name: str, topics: tuple[TopicInfo, ...], *, retain: bool
    ) -> Found:
        group = self.group_of(tenant, name)
        table = self._tables.get(tenant)
        matched = table.match(name) if table is not None else []
        far = self.leaders_match
        refs = () if far else tuple(_lists_in(group, matched))
        return Found(
            topics,
            refs=refs,
            routed_in=group if far else None,
            tree_name=name,
            watches=tuple(watch for each in matched for watch in each.watches),
            forwarders=tuple(dict.fromkeys(one for each in matched for one in each.forwarders)),
            retain_in=group if retain else None,
            tenant=tenant,
            spread=crc32(name.encode()) or 1,
        )

    def lists_of(self, tenant: str, name: str) -> Sequence[QueueRef]:
        """Reference lists of the name's group that a message published to it gets into."""
        key = (tenant, name)
        found = self._lists.get(key)
        if found is None:
            if len(self._lists) >= TREE_CACHE_NAMES:
                self._lists.clear()
            table = self._tables.get(tenant)
            matched = table.match(name) if table is not None else []
            found = self._lists[key] = _lists_in(self.group_of(tenant, name), matched)
        return found

    def _tree_topics(self, tenant: str, name: str) -> list[TopicInfo]:
        """Topics of the tree that are called like the name or a part of it up to a `/`."""
        topics = self._topics.get(tenant)
        if not topics:
            return []
        levels = name.split("/")
        prefixes = ("/".join(levels[:count]) for count in range(len(levels), 0, -1))
        found = next((topics[each] for each in prefixes if each in topics), None)
        return [found] if found is not None else []


def _lists_in(group: RaftGroup, matched: Sequence[PatternRoutes]) -> list[QueueRef]:
    return [ref for each in matched for ref in each.indexes if ref.group == group]
