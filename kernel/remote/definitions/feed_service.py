"""The store's side of feeds: what its groups define is told to gateways, everything once and then
each change as it is applied (`feed_wire`).

    applied -> item, encoded once -> waits in every feed of its group -> TOLD -> TAKEN

Back-pressure: of each feed WINDOW_BYTES are on their way. What waits behind them is bounded too: if
more than WAITING_BYTES_MAX of changes wait for a slow gateway, they are dropped and its feed begins
again with everything, which is then as large as the group and no larger.

Only the leader tells: when it stops leading its feeds end, and the gateways ask the next one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from ...api.model import Route, TopicInfo
from ...broker.group_state.state import QueueState, RouterState
from ...broker.group_state.tree_state import IndexChanged, SubscriberChanged, TreeEvent
from ...common.errors import Code, KernelError
from ...common.ids import METADATA_GROUP, TRANSIENT_GROUP, RaftGroup, home_of
from ...common.placement import home_group
from ...requests.leader import Leader
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.replicas.replica import Replica
from .. import things
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from . import feed_wire as wire

PAGE_BYTES = 256 * 1024
"""Of one TOLD, about: some 2 ms of making it, and a share of the bulk lane that others notice
little of."""

WINDOW_BYTES = 4 * PAGE_BYTES
"""Of one feed on their way: what a gateway takes in while a page travels."""

WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Changes that wait for a gateway: some 10,000 definitions."""

ROUTES_PER_ITEM = 64

RETRY_MS = 50
"""The bulk lane was full: so much later."""


class FeedHost(Protocol):
    """What the service asks of the store (`store.node.Store`)."""

    @property
    def groups(self) -> Sequence[RaftGroup]:
        """Numbers of all its groups."""

    @property
    def home_groups(self) -> Sequence[RaftGroup]:
        """Numbers of the groups that define names."""

    def serving(self, group: RaftGroup) -> Leader | None:
        """The leader of a group, if it serves from here."""

    def standing(self, group: RaftGroup) -> tuple[int, int]:
        """(term, number of the node that leads it, or 0) of a group, as this node knows."""

    def replica(self, group: RaftGroup) -> Replica:
        """One group."""

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> object:
        """Call `action` after so long."""


class FeedFigures:
    """Counters since this process began."""

    __slots__ = ("begun", "restarted", "told")

    def __init__(self) -> None:
        self.begun = 0
        """Feeds that were begun."""
        self.told = 0
        """Items that were told to gateways."""
        self.restarted = 0
        """Times that a feed began again, at WAITING_BYTES_MAX."""


class _Feed:
    """What one gateway is told of one group."""

    __slots__ = (
        "applied",
        "begins",
        "channel",
        "on_way",
        "pages",
        "replica",
        "retries",
        "subscribed",
        "unsent",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, channel: Channel, subscribed: wire.Subscribe, replica: Replica) -> None:
        self.channel = channel
        self.subscribed = subscribed
        self.replica = replica
        self.on_way = 0
        """Bytes told and not taken yet."""
        self.unsent: bytes | None = None
        """A TOLD that had no room in the bulk lane."""
        self.retries = False
        """It will be tried again."""
        self.applied = 0
        """As told last."""
        self.restart()

    def restart(self) -> None:
        """Tell everything."""
        self.begins = True
        self.pages: Iterator[msgspec.Raw] | None = map(wire.encode_item, everything(self.replica))
        self.waiting: deque[msgspec.Raw] = deque()
        self.waiting_bytes = 0

    def next(self) -> bytes | None:
        """The next TOLD; None if nothing is to be told now."""
        flags = wire.BEGINS if self.begins else 0
        items: list[msgspec.Raw] = []
        if self.waiting:
            size = 0
            while self.waiting and size < PAGE_BYTES:
                items.append(self.waiting.popleft())
                size += len(items[-1])
            self.waiting_bytes -= size
        elif self.pages is not None:
            items = _page(self.pages)
            if not items:
                self.pages = None
                flags |= wire.WHOLE
        else:
            return None
        if not self.waiting:
            self.applied = self.replica.state.applied
        self.begins = False
        return wire.encode_told(self.subscribed.feed, flags, self.applied, items)


class FeedService:
    """`sections.Section`, and `listener.Listener` of what this store's groups apply."""

    methods = calls.DEFINITIONS

    def __init__(self, host: FeedHost, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon(action)` calls it in a later turn of the loop."""
        self._host = host
        self._soon = soon
        self._feeds: defaultdict[RaftGroup, dict[Channel, _Feed]] = defaultdict(dict)
        self._changed: dict[RaftGroup, None] = {}
        """Groups with something to tell when this turn is over."""
        self._accepting = True
        self.figures = FeedFigures()

    def defined(self, group: RaftGroup) -> int:
        """Index of the last entry that has changed a definition of a group, as far as this store
        has applied it: its feeds tell of it.
        """
        return self._host.replica(group).defined

    def accepting(self, yes: bool) -> None:
        """Whether this store has room for new messages is news."""
        self._accepting = yes
        channels = {each: None for feeds in self._feeds.values() for each in feeds}
        for channel in channels:
            channel.cast(wire.ACCEPTING, wire.encode(yes), control=True)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come: it says what it wants to hear."""

    def closed(self, channel: Channel) -> None:
        """A gateway is gone: forget its feeds."""
        for feeds in self._feeds.values():
            feeds.pop(channel, None)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """SUBSCRIBE: in the place of what the gateway has heard of the group until now."""
        if method != wire.SUBSCRIBE:
            raise RpcError(f"method {method} is not called")
        try:
            subscribed = wire.decode_subscribe(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        group = RaftGroup(subscribed.group)
        if self._host.serving(group) is None:
            leads = self._host.standing(group)[1] if group in self._host.groups else 0
            message = f"this node does not serve group {group}"
            reply(KernelError(Code.NOT_LEADER, message, leads))
            return
        reply(())
        channel.cast(wire.ACCEPTING, wire.encode(self._accepting), control=True)
        feed = _Feed(channel, subscribed, self._host.replica(group))
        self._feeds[group][channel] = feed
        self.figures.begun += 1
        self._push(feed)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """TAKEN: there is room for more."""
        if method != wire.TAKEN:
            raise RpcError(f"method {method} is not told to stores")
        try:
            taken = wire.decode_taken(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        for feeds in self._feeds.values():
            feed = feeds.get(channel)
            if feed is not None and feed.subscribed.feed == taken.feed:
                feed.on_way = max(feed.on_way - taken.size, 0)
                self._push(feed)
                return

    # --- Telling ----------------------------------------------------------------------------

    def _push(self, feed: _Feed) -> None:
        """Tell what may be told now."""
        while feed.unsent is not None or feed.on_way < WINDOW_BYTES:
            told = feed.unsent or feed.next()
            if told is None:
                return
            if not feed.channel.cast(wire.TOLD, (told,)):
                feed.unsent = told
                if not feed.retries:
                    feed.retries = True
                    self._host.call_later(RETRY_MS, partial(self._retry, feed))
                return
            feed.unsent = None
            feed.on_way += len(told)

    def _retry(self, feed: _Feed) -> None:
        feed.retries = False
        if self._feeds[RaftGroup(feed.subscribed.group)].get(feed.channel) is feed:
            self._push(feed)

    def _tell(self, replica: Replica, make: Callable[[], wire.Item]) -> None:
        """Something of a group has changed: its feeds hear of it when this turn is over."""
        group = replica.group
        feeds = self._feeds[group]
        if not feeds:
            return
        item = wire.encode_item(make())
        self.figures.told += 1
        for feed in feeds.values():
            feed.waiting.append(item)
            feed.waiting_bytes += len(item)
            if feed.waiting_bytes > WAITING_BYTES_MAX:
                self.figures.restarted += 1
                feed.restart()
        if not self._changed:
            self._soon(self._flush)
        self._changed[group] = None

    def _flush(self) -> None:
        changed, self._changed = self._changed, {}
        for group in changed:
            for feed in list(self._feeds[group].values()):
                self._push(feed)

    # --- listener.Listener ------------------------------------------------------------------

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """A definition changed."""
        home = home_of(topic.id)
        if home == TRANSIENT_GROUP:
            return
        gone = wire.TopicGone(topic.tenant, topic.name, topic.id)
        replica = self._host.replica(home)
        self._tell(replica, lambda: gone if removed else things.TopicIs(topic))

    def router_changed(self, router: RouterState, group: RaftGroup, *, removed: bool) -> None:
        """A router changed."""
        if group == TRANSIENT_GROUP:
            return
        name = router.tenant, router.name
        gone = things.RouterGone(*name)
        replica = self._host.replica(group)
        self._tell(replica, lambda: gone if removed else things.RouterIs(*name, router.options))

    def route_changed(self, router: RouterState, route: Route, *, removed: bool) -> None:
        """A route came or went."""
        name = router.tenant, router.name
        replica = self._host.replica(home_group(self._host.home_groups, *name))
        if replica.state.routers.get(name) is not router:
            return  # the half of it that lives in memory
        gone = things.RouteGone(*name, route)
        self._tell(replica, lambda: gone if removed else wire.RoutesAre(*name, [route]))

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed."""
        replica = self._host.replica(METADATA_GROUP)
        self._tell(
            replica,
            lambda: wire.RecordGone(key) if record is None else wire.RecordIs(key, *record),
        )

    def tree_changed(self, replica: Replica, event: TreeEvent) -> None:
        """Something of the topic tree changed."""
        if replica.group == TRANSIENT_GROUP:
            return
        if isinstance(event, SubscriberChanged):
            who = event.subscriber
            about = who.tenant, who.name, who.number, who.epoch, event.ended
            self._tell(replica, lambda: wire.SubscriberIs(*about))
        elif isinstance(event, IndexChanged):
            about_list = event.tenant, event.pattern
            if event.removed:
                self._tell(replica, lambda: wire.IndexGone(*about_list))
            else:
                queue = replica.state.topics[event.topic].refs[0].id
                self._tell(replica, lambda: wire.IndexIs(*about_list, queue, replica.group))

    def unused(self, queue: QueueState) -> None:
        """Nothing that is defined."""

    def outbox_grew(self, replica: Replica) -> None:
        """Nothing that is defined."""

    def leads(self, replica: Replica) -> None:
        """Gateways come by themselves."""

    def follows(self, replica: Replica) -> None:
        """Another store leads: gateways go there."""
        feeds = self._feeds.get(replica.group)
        if feeds:
            self._feeds[replica.group] = {}
            for feed in feeds.values():
                feed.channel.cast(wire.ENDED, wire.encode(feed.subscribed.feed), control=True)

    def replaced(self, replica: Replica) -> None:
        """A snapshot has taken the place of a group's state: of one that is not led here."""


def _page(pages: Iterator[msgspec.Raw]) -> list[msgspec.Raw]:
    items: list[msgspec.Raw] = []
    size = 0
    for item in pages:
        items.append(item)
        size += len(item)
        if size >= PAGE_BYTES:
            break
    return items


def everything(replica: Replica) -> Iterator[wire.Item]:
    """Each thing that a group defines, as it is when its turn comes. What comes meanwhile is told
    as a change.
    """
    state = replica.state
    for name in list(state.routers):
        router = state.routers.get(name)
        if router is None:
            continue
        yield things.RouterIs(*name, router.options)
        routes = list(router.routes)
        for start in range(0, len(routes), ROUTES_PER_ITEM):
            some = routes[start : start + ROUTES_PER_ITEM]
            there = [each for each in some if each in router.routes]
            yield wire.RoutesAre(*name, there)
    for ident in list(state.topic_names.everything()):
        topic = state.topics.get(ident)
        if topic is not None:
            yield things.TopicIs(topic.info())
    for key in list(state.records):
        record = state.records.get(key)
        if record is not None:
            yield wire.RecordIs(key, *record)
    for tenant, pattern in list(state.indexes):
        index = state.indexes.get((tenant, pattern))
        if index is not None:
            queue = state.topics[index].refs[0].id
            yield wire.IndexIs(tenant, pattern, queue, replica.group)
