"""Changes of topics, routers and routes, carried out over the Raft groups they touch.

Each change returns once every command it needed is on disk. A name is changed by one change at a
time, so that a check and the command that follows it see the same state.

One command decides a change: it goes to the leader of the name's home group in this process, and is
not tried elsewhere, since what was checked here may not hold at another leader. A change that
another process asks for has an identity, and its deciding command goes under that. So when the
question comes again, perhaps to the next leader, the group's state tells what was decided; then
only what follows from it is done.

What a change does in other groups, led here or elsewhere, goes by request pipeline. What it has to
know of them is asked of their leaders where this store, which may be a little behind, could be
wrong: that a route's end does not exist (`peer_stores.PeerStores.level`), which routes lead to what
is gone (`clearing`). When this store begins to lead a group, changes there wait until what the last
leader has left is mended (`repairing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from ..api.changes import name_of
from ..api.client import (
    Administration,
    DeleteGroup,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
    ResizeTopic,
)
from ..api.model import RouterInfo, RouterOptions, TopicInfo
from ..broker.group_state.state import GroupState
from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.ids import METADATA_GROUP, TOPIC_IDS_PER_TERM, RaftGroup, TopicId, home_of
from ..common.keyed_lock import KeyedLock
from ..common.placement import home_group
from ..requests.leader import NO_IDENTITY, Identity, Leader
from ..requests.peer_stores import Gone, Kind, PeerStores
from ..requests.proposer import Proposer, first_of, propose_to
from ..routing.topology import Topology
from ..store.node import Store
from . import definition_checks as checks
from .clearing import Clearing, Touched
from .definer import Asked, Definer
from .queue_placement import place_queues
from .repairing import Repairing
from .resizing import Resizing
from .transient_definitions import TransientDefinitions

NOT_KNOWN = frozenset({Code.NOT_LEADER, Code.UNKNOWN_OUTCOME, Code.TIMEOUT, Code.UNAVAILABLE})
"""After these a change may be decided, and not be carried out in every group."""


class Administrator(Definer):
    """Carries out `client.Administration`."""

    def __init__(
        self,
        store: Store,
        topology: Topology,
        proposer: Proposer,
        leader_of: Callable[[RaftGroup], Leader],
    ) -> None:
        """`leader_of`: the leader of a group, here or elsewhere."""
        super().__init__(topology, proposer)
        self._store = store
        self._find_leader = leader_of
        self._keyed_lock = KeyedLock()
        self.is_reserved: Callable[[str, str, str], bool] = lambda _kind, _tenant, _name: False
        """Whether the name of a "topic" or "router" is just being taken for something in the memory
        of a gateway."""
        self.closed: Callable[[], Collection[RaftGroup]] = tuple
        """Groups that get no new queues. Set where it is known which have too few replicas."""
        self.queues_changed: Callable[[TopicInfo, TopicInfo], None] = lambda _before, _after: None
        """Told how a topic was and is, once this process has given it other queues: whoever asked,
        and if it only finished what another leader had begun."""
        self.unfinished: Callable[[RaftGroup], None] = lambda _home: None
        """Told that a change which a group has decided may not be carried out to its end."""
        self._last_ident: dict[RaftGroup, int] = {}
        self._transient = TransientDefinitions(
            store.transient_group,
            topology,
            proposer,
            lambda change: self.delete_router(change, Asked()),
        )
        self._clearing = Clearing(
            store, topology, self.exists, self._transient.target_gone, self._clear_route
        )
        self._repairing = Repairing(store, topology, proposer, self._keyed_lock, self._clearing)
        self._resizing = Resizing(
            self._state,
            lambda group, command: self._decide(group, command, Asked()),
            self._propose,
        )
        self._mending: dict[RaftGroup, asyncio.Event] = {}
        """Groups in which changes wait."""

    def join(self, peer_stores: PeerStores) -> None:
        """Other stores lead groups too."""
        self._clearing.peer_stores = peer_stores

    def is_changing(self, tenant: str, name: str) -> bool:
        """Whether something of a name is being made, changed or deleted here just now."""
        return self._keyed_lock.is_taken((tenant, name))

    def is_transient(self, change: Administration) -> bool:
        """Whether a change is one of what lives in the memory of this process, or is to."""
        return self._transient.is_local(change)

    def decides(self, change: Administration) -> RaftGroup:
        """The group whose leader carries out a change of what is durable."""
        if isinstance(change, PutRecord):
            return METADATA_GROUP
        return self._home(change.tenant, name_of(change))

    async def administer(self, change: Administration, asked: Asked | None = None) -> object:
        """Make a change (see its docstring for the result and the errors); with an identity, once
        under that.
        """
        asked = asked or Asked()
        if isinstance(change, PutRecord):
            put = commands.PutRecord(change.key, change.value, change.expected)
            return await self._decide(METADATA_GROUP, put, asked)
        name = name_of(change)
        checks.check_name(change.tenant, name)
        home = self._home(change.tenant, name)
        await self.may_change(change.tenant, name)
        async with self._keyed_lock.of((change.tenant, name)):
            decided = self._decided(home, asked.identity)
            if isinstance(decided, KernelError):
                raise decided
            if decided is not None:
                return await self._follow_up(change, decided[0], asked)
            if isinstance(change, ResizeTopic):
                topic = self._topic(change.tenant, change.name)
                groups = self._able_groups(topic) if change.spread else ()
                resized = await self._resizing.resize(
                    topic, change.queues, by_key=change.by_key, spread_over=groups
                )
                return self._tell(topic, resized)
            if self._transient.is_local(change):
                return await self._transient.carry_out(change, asked)
            try:
                return await self.carry_out(change, asked)
            except (KernelError, asyncio.CancelledError) as error:
                if not isinstance(error, KernelError) or error.code in NOT_KNOWN:
                    self.unfinished(home)
                raise

    async def let_go_of_queues(self, topic: TopicInfo) -> None:
        """Have a topic lose the sealed queues that everybody is done with."""
        async with self._keyed_lock.of((topic.tenant, topic.name)):
            known = self._topology.topics.get((topic.tenant, topic.name))
            if known is not None and known.id == topic.id:
                self._tell(known, await self._resizing.let_go(known))

    async def go_on_resizing(self, groups: Collection[RaftGroup]) -> None:
        """Finish resizes that the last leader of these groups has begun. Raises KernelError: it has
        to be begun again.
        """
        for topic in self._resizing.planned(groups):
            async with self._keyed_lock.of((topic.tenant, topic.name)):
                if topic.id in self._state(home_of(topic.id)).topics:
                    self._tell(topic, await self._resizing.go_on(topic.id))

    def _tell(self, before: TopicInfo, after: TopicInfo) -> TopicInfo:
        if after.queues != before.queues:
            self.queues_changed(before, after)
        return after

    def _decided(
        self, home: RaftGroup, identity: Identity | None
    ) -> tuple[object, ...] | KernelError | None:
        """What a deciding command has come to, if it was carried out under this identity before."""
        if identity is None:
            return None
        client, epoch, sequence = identity
        known = self._store.replica(home).state.clients.get((client, epoch))
        if known is None or sequence not in known.results:
            return None
        result = first_of(known.results[sequence])
        return result if isinstance(result, KernelError) else (result,)

    async def _decide(self, group: RaftGroup, command: commands.Control, asked: Asked) -> object:
        """Have the leader in this process carry out the command that decides a change. Raises its
        result if that is a KernelError: NOT_LEADER, UNKNOWN_OUTCOME too.
        """
        leader = self._store.leader(group)
        return await propose_to(leader, command, asked.identity or NO_IDENTITY)

    async def _follow_up(self, change: Administration, decided: object, asked: Asked) -> object:
        """What a change that was decided before is to return, once what follows from it is done.
        What was deleted elsewhere than at home is `repairing`'s; of the messages that went with a
        topic nobody knows the number any more.
        """
        if isinstance(change, PutTopic | PutRouter):
            return decided if decided is not None else self._made(change)
        if isinstance(change, DeleteTopic):
            if (change.tenant, change.name) not in self._topology.topics:
                await self._clear(change.tenant, "topic", change.name, asked)
            return 0
        if isinstance(change, DeleteRouter):
            if self._topology.router_options(change.tenant, change.name) is None:
                await self._clear(change.tenant, "router", change.name, asked)
            return None
        if isinstance(change, DeleteGroup):
            topic = self._topology.topics.get((change.tenant, change.name))
            if topic is not None and change.group not in topic.groups:
                await self._forget_group(topic, change.group)
            return None
        if isinstance(change, PutRoute):
            return None
        if isinstance(change, DeleteRoute):
            await self._let_go(change, asked)
            return True
        return decided

    def _made(self, change: PutTopic | PutRouter) -> TopicInfo | RouterInfo:
        """What was made, as it is by now: a snapshot has come in between, which does not hold it
        twice. NOT_FOUND if it is gone.
        """
        key = (change.tenant, change.name)
        state = self._state(self._home(*key))
        if isinstance(change, PutRouter) and key in state.routers:
            return state.routers[key].info()
        if isinstance(change, PutTopic) and key in state.topic_names:
            return state.topics[state.topic_names[key]].info()
        raise KernelError(Code.NOT_FOUND, f"{change.name} was made, and deleted since")

    # --- Beginning to lead ------------------------------------------------------------------

    def hold(self, group: RaftGroup) -> None:
        """A group is led here from now on: its changes wait until `go_on`."""
        self._mending.setdefault(group, asyncio.Event())

    async def repair(self, groups: Collection[RaftGroup]) -> bool:
        """Mend what was left half done in groups that are led here; whether to look again."""
        return await self._repairing.repair(groups)

    async def go_on(self, groups: Collection[RaftGroup]) -> None:
        """Groups are mended: their changes wait no longer."""
        for group in groups:
            self.release(group)

    def release(self, group: RaftGroup) -> None:
        """What waits in a group goes on; if it is led elsewhere now, it will hear so."""
        event = self._mending.pop(group, None)
        if event is not None:
            event.set()

    async def may_change(self, tenant: str, name: str) -> None:
        """Return once changes of a name wait for nothing."""
        event = self._mending.get(self._home(tenant, name))
        if event is not None:
            await event.wait()

    async def clear_here(self, group: RaftGroup, gone: Gone) -> Touched:
        """Another store's leader has deleted something: remove a group's routes to it."""
        return await self._clearing.here(group, gone)

    # --- Where what is durable lives --------------------------------------------------------

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return home_group(self._store.home_groups, tenant, name)

    def _placement(self, home: RaftGroup, queues: int) -> Sequence[RaftGroup]:
        return place_queues(home, self._store.data_groups, queues, closed=self.closed())

    def _able_groups(self, topic: TopicInfo) -> Sequence[RaftGroup]:
        """Those that may get queues of a topic. Each has its part of it; what does not come out
        even goes to the first: to which least was written, if this store has a replica of each,
        else from the home on.
        """
        groups = self._store.data_groups
        able = list(dict.fromkeys(self._placement(home_of(topic.id), len(groups))))
        if not all(map(self._store.holds, able)):
            return able
        return sorted(able, key=lambda each: self._store.member(each).log.appended_bytes)

    def _known_in(self, topic: TopicInfo) -> set[RaftGroup]:
        # One that was spread has left groups behind, which nobody has a list of. One that is being
        # spread has come to groups of which it has no queue yet.
        resized = self._state(home_of(topic.id)).resized.get(topic.id)
        is_planned = resized is not None and resized.plan is not None
        elsewhere = self._store.data_groups if topic.once or is_planned else ()
        return {*super()._known_in(topic), *elsewhere}

    def _new_ident(self, home: RaftGroup, *, spread: bool) -> TopicId:
        """Queues that a deposed leader has made elsewhere, or is about to, must not be those of a
        topic of the next one, which begins TOPIC_IDS_PER_TERM later.
        """
        following = self._state(home).next_topic
        number = max(following, self._last_ident.get(home, 0) + 1)
        if spread and number - following >= TOPIC_IDS_PER_TERM:
            message = f"{TOPIC_IDS_PER_TERM} topics of group {home} were begun and not made"
            raise KernelError(Code.BUSY, message)
        self._last_ident[home] = number
        return TopicId(home << 32 | number)

    def _state(self, home: RaftGroup) -> GroupState:
        return self._store.replica(home).state

    def _leader_of(self, group: RaftGroup) -> Leader:
        return self._find_leader(group)

    def _check_free(self, kind: Kind, tenant: str, name: str) -> None:
        if self.is_reserved(kind, tenant, name):
            raise KernelError(Code.LOCKED, f"{kind} {name} is being made by another gateway")

    async def _level(self, tenant: str, name: str) -> None:
        peer_stores = self._clearing.peer_stores
        if peer_stores is not None:
            await peer_stores.level([self._home(tenant, name)])

    async def _clear(self, tenant: str, kind: Kind, name: str, asked: Asked) -> None:
        if kind == "router":
            await self._transient.router_gone(tenant, name)
        await self._clearing.everywhere(tenant, kind, name, asked.touched)

    async def _last_route_gone(
        self, change: DeleteRouter, options: RouterOptions, asked: Asked
    ) -> None:
        await self.delete_router(change, asked)

    async def _clear_route(self, change: DeleteRoute, touched: Touched) -> object:
        if self._transient.has_route(change.tenant, change.router, change.route):
            return await self._transient.delete_route(change, Asked())
        return await self.delete_route(change, Asked(touched=touched))
