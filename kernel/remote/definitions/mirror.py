"""What one Raft group defines, as a gateway has been told: the mirror of it, and what has changed.

While everything is told for the first time, or again, a second mirror is filled in silence; when it
is whole, the first one becomes it, and whoever listens hears of the differences only. A definition
that is equal to the one known before stays the same object: adapters compare by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...api.model import QueueRef, Route, RouterOptions, TopicInfo
from ...common.names import ByName
from ...routing.topology import Topology
from .. import things
from . import feed_wire as wire


class Hears:
    """Hears what changes at a mirror. Derive from it, for what is of interest."""

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A topic is new, has changed, or is gone."""

    def router_changed(
        self, tenant: str, name: str, options: RouterOptions, *, removed: bool
    ) -> None:
        """A router is new, has changed its options, or is gone with its routes."""

    def route_changed(self, tenant: str, router: str, route: Route, *, removed: bool) -> None:
        """A route has come or gone; not told of those that go with their router."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record is new or has changed, to (version, value), or (None) is gone."""

    def index_changed(self, tenant: str, pattern: str, ref: QueueRef, *, removed: bool) -> None:
        """A reference list of a tree pattern has been made, or is gone."""

    def subscriber_changed(self, event: wire.SubscriberIs) -> None:
        """A subscriber was opened, closed or has ended. What happened while the feed of its group
        was broken is not told: `mirrored` says that there may have been something.
        """

    def mirrored(self, group: int) -> None:
        """A group has been told as a whole, for the first time or again."""


class InTopology(Hears):
    """Has look-ups show what the mirrors show."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """See `Hears`, here and below."""
        if removed:
            self._topology.remove_topic(topic)
        else:
            self._topology.put_topic(topic)

    def router_changed(
        self, tenant: str, name: str, options: RouterOptions, *, removed: bool
    ) -> None:
        """A router, with what leads from it in this process's memory."""
        if removed:
            self._topology.remove_router(tenant, name)
        else:
            self._topology.put_router(tenant, name, options, ())

    def route_changed(self, tenant: str, router: str, route: Route, *, removed: bool) -> None:
        """A route."""
        if removed:
            self._topology.remove_route(tenant, router, route)
        else:
            self._topology.add_route(tenant, router, route)

    def index_changed(self, tenant: str, pattern: str, ref: QueueRef, *, removed: bool) -> None:
        """A reference list."""
        if removed:
            self._topology.tree.remove_index(tenant, pattern, ref.group)
        else:
            self._topology.tree.add_index(tenant, pattern, ref)


SILENCE: Sequence[Hears] = ()


@dataclass(slots=True)
class _Router:
    options: RouterOptions
    routes: dict[Route, None] = field(default_factory=dict)


class Mirror:
    """What one Raft group defines, as its leader has told it."""

    def __init__(self) -> None:
        self.topics: ByName[TopicInfo] = ByName()
        self.routers: dict[tuple[str, str], _Router] = {}
        self.records: dict[str, tuple[int, bytes]] = {}
        self.indexes: dict[tuple[str, str], QueueRef] = {}

    def take(self, item: wire.Item, hears: Sequence[Hears]) -> None:
        """Apply what a feed has told."""
        if isinstance(item, things.TopicIs):
            self._put_topic(item.topic, hears)
        elif isinstance(item, wire.TopicGone):
            known = self.topics.get((item.tenant, item.name))
            if known is not None and known.id == item.id:
                self._drop_topic(known, hears)
        elif isinstance(item, things.RouterIs):
            self._put_router((item.tenant, item.name), item.options, hears)
        elif isinstance(item, things.RouterGone):
            self._drop_router((item.tenant, item.name), hears)
        elif isinstance(item, wire.RoutesAre):
            for route in item.routes:
                self._put_route((item.tenant, item.router), route, hears)
        elif isinstance(item, things.RouteGone):
            self._drop_route((item.tenant, item.router), item.route, hears)
        elif isinstance(item, wire.RecordIs):
            self._put_record(item.key, (item.version, item.value), hears)
        elif isinstance(item, wire.RecordGone):
            self._drop_record(item.key, hears)
        elif isinstance(item, wire.IndexIs):
            self._put_index((item.tenant, item.pattern), wire.ref_of(item), hears)
        elif isinstance(item, wire.IndexGone):
            self._drop_index((item.tenant, item.pattern), hears)

    def become(self, new: Mirror, hears: Sequence[Hears]) -> None:
        """Be as `new`, and tell the differences: first what is gone."""
        for key in self.routers.keys() - new.routers.keys():
            self._drop_router(key, hears)
        for name, topic in list(self.topics.items()):
            known = new.topics.get(name)
            if known is None or known.id != topic.id:
                self._drop_topic(topic, hears)
        for record in self.records.keys() - new.records.keys():
            self._drop_record(record, hears)
        for index in self.indexes.keys() - new.indexes.keys():
            self._drop_index(index, hears)
        for topic in new.topics.values():
            self._put_topic(topic, hears)
        for key, router in new.routers.items():
            self._put_router(key, router.options, hears)
            for route in self.routers[key].routes.keys() - router.routes.keys():
                self._drop_route(key, route, hears)
            for route in router.routes:
                self._put_route(key, route, hears)
        for record, value in new.records.items():
            self._put_record(record, value, hears)
        for index, ref in new.indexes.items():
            self._put_index(index, ref, hears)

    # --- One thing ---------------------------------------------------------------------------

    def _put_topic(self, topic: TopicInfo, hears: Sequence[Hears]) -> None:
        key = topic.tenant, topic.name
        known = self.topics.get(key)
        if known == topic:
            return
        if known is not None and known.id != topic.id:
            self._drop_topic(known, hears)
        self.topics[key] = topic
        for each in hears:
            each.topic_changed(topic, removed=False)

    def _drop_topic(self, topic: TopicInfo, hears: Sequence[Hears]) -> None:
        del self.topics[topic.tenant, topic.name]
        for each in hears:
            each.topic_changed(topic, removed=True)

    def _put_router(
        self, key: tuple[str, str], options: RouterOptions, hears: Sequence[Hears]
    ) -> None:
        known = self.routers.get(key)
        if known is None:
            self.routers[key] = _Router(options)
        elif known.options == options:
            return
        else:
            known.options = options
        for each in hears:
            each.router_changed(*key, options, removed=False)

    def _drop_router(self, key: tuple[str, str], hears: Sequence[Hears]) -> None:
        router = self.routers.pop(key, None)
        if router is not None:
            for each in hears:
                each.router_changed(*key, router.options, removed=True)

    def _put_route(self, key: tuple[str, str], route: Route, hears: Sequence[Hears]) -> None:
        router = self.routers.get(key)
        if router is not None and route not in router.routes:
            router.routes[route] = None
            for each in hears:
                each.route_changed(*key, route, removed=False)

    def _drop_route(self, key: tuple[str, str], route: Route, hears: Sequence[Hears]) -> None:
        router = self.routers.get(key)
        if router is not None and route in router.routes:
            del router.routes[route]
            for each in hears:
                each.route_changed(*key, route, removed=True)

    def _put_record(self, key: str, record: tuple[int, bytes], hears: Sequence[Hears]) -> None:
        if self.records.get(key) != record:
            self.records[key] = record
            for each in hears:
                each.record_changed(key, record)

    def _drop_record(self, key: str, hears: Sequence[Hears]) -> None:
        if self.records.pop(key, None) is not None:
            for each in hears:
                each.record_changed(key, None)

    def _put_index(self, key: tuple[str, str], ref: QueueRef, hears: Sequence[Hears]) -> None:
        if self.indexes.get(key) != ref:
            self.indexes[key] = ref
            for each in hears:
                each.index_changed(*key, ref, removed=False)

    def _drop_index(self, key: tuple[str, str], hears: Sequence[Hears]) -> None:
        ref = self.indexes.pop(key, None)
        if ref is not None:
            for each in hears:
                each.index_changed(*key, ref, removed=True)
