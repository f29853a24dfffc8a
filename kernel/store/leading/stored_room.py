"""How much tenants and topics may store: limits of messages and bytes (ADR 29), and each tenant's
share of the disk.

    each second     what all groups of this store hold is added up, by tenant
    each publish    of who is near its limit: that, and by how much the group that is written to has
                    changed since

So a limit holds exactly where one group has all of it, and within a second's traffic elsewhere.
Who refuses is `topic_room`, as a full topic does. Whoever has no limit of stored bytes has a share
of the disk, unless nobody else is there: a tenant may have as much as is still free above the mark
of a full disk (a *dynamic threshold*, as switches share their buffers). So the first may fill half
of it, two a third each, n of them 1/(n + 1): there is always room for the next one.

The server's own topics (metering) are nobody's neighbour, and have no limit: the bill is written as
long as anything is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...api.message import HEADER_BYTES
from ...broker.group_state.resized import ResizedTopic
from ...broker.group_state.state import GroupState
from ...broker.group_state.stored import MESSAGES, SIZE, Tally
from ...broker.group_state.topic_state import QueueState, TopicState
from ...common.errors import Code, KernelError
from ...common.ids import MEMORY_FIRST, RaftGroup, TopicId
from ...common.limits import is_servers_own
from ...quotas.accounts import Quotas
from ...quotas.limits import EACH, Entity, LimitKind, Scope
from ..replicas.replica import Replica
from ..space.disk_watch import DiskSpace

DISK_SHARE: Final = "tenant.disk_share"
"""The reason of who has filled its share of the disk."""

MESSAGE_BYTES: Final = HEADER_BYTES + 16
"""What a message takes on disk beside its properties and body: its header, and about what its entry
says of it."""

NEAR_MESSAGES: Final = 50_000
NEAR_BYTES: Final = 64 * 1024 * 1024
"""Who may store more than that much more is not asked about until the next look: a store takes less
in a second."""

_NOTHING: Final = (0, 0)

Sums = Mapping[str, tuple[int, int]]
"""(messages, bytes) by tenant."""

Taken = dict[object, tuple[int, int]]
"""(messages, bytes) by tenant, or by id of a topic."""


class Bound(NamedTuple):
    """A limit: `per_message * messages + per_byte * bytes` may come to `most`."""

    reason: str
    per_message: int
    per_byte: int
    most: int


class Room:
    """What one tenant or topic stores, and may."""

    __slots__ = ("bounds", "by_group", "messages", "size")

    def __init__(self, bounds: list[Bound]) -> None:
        self.bounds = bounds
        self.messages = self.size = 0
        """In all groups, as of the last look."""
        self.by_group: dict[RaftGroup, tuple[int, int]] = {}
        """The same, group by group."""

    @property
    def is_near(self) -> bool:
        """Whether a limit may be reached before the next look."""
        return any(
            each.most - _amount(each, self) < (NEAR_BYTES if each.per_byte else NEAR_MESSAGES)
            for each in self.bounds
        )

    def add(self, group: RaftGroup, tally: Tally) -> None:
        """A group has so much of it."""
        self.messages += tally[MESSAGES]
        self.size += tally[SIZE]
        self.by_group[group] = tally[MESSAGES], tally[SIZE]

    def now(self, group: RaftGroup, tally: Tally | None) -> tuple[int, int]:
        """(messages, bytes) by what one group has now."""
        messages, size = self.by_group.get(group, _NOTHING)
        if tally is None:
            return self.messages - messages, self.size - size
        return self.messages - messages + tally[MESSAGES], self.size - size + tally[SIZE]


class StoredRoom:
    """Of one store. `look` once a second."""

    def __init__(self) -> None:
        self._quotas: Quotas | None = None
        self._tenants_named = 1
        self._rooms: dict[str, Room] = {}
        self._topics: dict[TopicId, Room] = {}
        self._entities: dict[TopicId, Entity] = {}
        self._totals: dict[Entity, Room] = {}
        """Of all tenants that have anything, and of the topics that are limited."""
        self.elsewhere: dict[RaftGroup, Sums] = {}
        """What groups hold that this store has no replica of, as their leaders say."""
        self._coming: Taken = {}
        """What is on its way into the log."""
        self.is_any = False
        """Whether anything may be refused: to be asked first (hot)."""

    def limit(self, quotas: Quotas, tenants: int) -> None:
        """These limits hold from the next look on. `tenants`: how many there are, whether or not
        they have anything yet.
        """
        self._quotas, self._tenants_named = quotas, tenants

    # --- Each second ------------------------------------------------------------------------

    def look(self, replicas: Sequence[Replica], space: DiskSpace) -> None:
        """Add up what is stored."""
        quotas = self._quotas
        if quotas is None:
            return
        # What is in memory alone has bounds of its own.
        states = [each.state for each in replicas if each.group < MEMORY_FIRST]
        self._watch_topics(quotas, states)
        totals: dict[str, Room] = {}
        for state in states:
            for tenant, tally in state.stored.by_tenant.items():
                if is_servers_own(tenant):
                    continue
                room = totals.get(tenant)
                if room is None:
                    room = totals[tenant] = Room([])
                room.add(state.group, tally)
        share = self._share(states, space)
        away = self._add_elsewhere(totals)
        for entity in quotas.limits():
            if entity.scope is Scope.TENANT and entity.tenant != EACH:
                totals.setdefault(entity.tenant, Room([]))
        for tenant, room in totals.items():
            room.bounds = _limits(quotas, Entity(Scope.TENANT, tenant, ""))
            if share is not None and quotas.of_tenant(tenant).stored_bytes is None:
                # What is not here does not fill this disk.
                bound = Bound(DISK_SHARE, MESSAGE_BYTES, 1, share + away.get(tenant, 0))
                room.bounds.append(bound)
        self._tell(quotas, totals)
        self._totals = {
            **{Entity(Scope.TENANT, tenant, ""): room for tenant, room in totals.items()},
            **{self._entities[ident]: room for ident, room in self._topics.items()},
        }
        self._rooms = {tenant: room for tenant, room in totals.items() if room.is_near}
        self._topics = {ident: room for ident, room in self._topics.items() if room.is_near}
        self.is_any = bool(self._rooms or self._topics)

    def _add_elsewhere(self, totals: dict[str, Room]) -> dict[str, int]:
        """Add what other groups hold; how many bytes that takes there, by tenant."""
        away: dict[str, int] = {}
        for group, sums in self.elsewhere.items():
            for tenant, (messages, size) in sums.items():
                if is_servers_own(tenant):
                    continue
                totals.setdefault(tenant, Room([])).add(group, [messages, size])
                away[tenant] = away.get(tenant, 0) + MESSAGE_BYTES * messages + size
        return away

    def _share(self, states: Sequence[GroupState], space: DiskSpace) -> int | None:
        """Up to what a tenant may fill the disk; None: all of it."""
        if self._tenants_named == 1 and not _are_several(states):
            return None
        return max(space.free_bytes - space.mark_bytes, 0)

    def _watch_topics(self, quotas: Quotas, states: Sequence[GroupState]) -> None:
        entities: dict[TopicId, Entity] = {}
        for entity in quotas.limits():
            if entity.scope is Scope.TOPIC and _limits(quotas, entity):
                for state in states:
                    ident = state.topic_names.get((entity.tenant, entity.name))
                    if ident is not None:
                        entities[ident] = entity
        if entities or self._entities:
            self._entities = entities
            for state in states:
                _watch(state, entities)
        self._topics = {ident: Room(_limits(quotas, each)) for ident, each in entities.items()}
        for ident, room in self._topics.items():
            for state in states:
                tally = state.stored.by_topic.get(ident)
                if tally is not None:
                    room.add(state.group, tally)

    def _tell(self, quotas: Quotas, tenants: Mapping[str, Room]) -> None:
        """Say what is stored of what is limited."""
        found: dict[Entity, tuple[int, int]] = {}
        for tenant, room in tenants.items():
            entity = Entity(Scope.TENANT, tenant, "")
            if _limits(quotas, entity):
                found[entity] = room.messages, room.size
        for ident, room in self._topics.items():
            found[self._entities[ident]] = room.messages, room.size
        quotas.stored = found

    def figures(self, scope: str, tenant: str, name: str) -> tuple[int, int]:
        """(messages, bytes) that one has stored, by the last look; 0: nothing, or not known."""
        room = self._totals.get(Entity(Scope(scope), tenant, name))
        return (0, 0) if room is None else (room.messages, room.size)

    # --- Each publish -----------------------------------------------------------------------

    def admit(
        self, state: GroupState, topic: TopicState, slot_bytes: Sequence[int], taken: Taken
    ) -> int:
        """How many of some messages, from the first one on, may be stored in a queue of a topic.
        They are on their way from now on, until `give_up` of what is `taken`.
        """
        found = list(self._rooms_of(state, topic))
        count, reason = len(slot_bytes), ""
        for key, room, messages, size in found:
            coming = self._coming.get(key, _NOTHING)
            here = messages + coming[0], size + coming[1]
            for bound in room.bounds:
                fits = _fitting(bound, *here, slot_bytes[:count])
                if fits < count:
                    count, reason = fits, bound.reason
        more = sum(slot_bytes[:count]) - HEADER_BYTES * count
        if count:
            for key, *_ in found:
                _count(self._coming, key, count, more)
                _count(taken, key, count, more)
        if reason and self._quotas is not None:
            self._quotas.refused(topic.tenant, reason, len(slot_bytes) - count)
        return count

    def refusal(self, state: GroupState, topic: TopicState, slot_bytes: int) -> KernelError | None:
        """Why one message of so many bytes, which is no matter of a batch, is not stored."""
        if not self.is_any:
            return None
        taken: Taken = {}
        fits = self.admit(state, topic, [slot_bytes], taken)
        self.give_up(taken)
        return None if fits else too_much(topic)

    def is_full(self, tenant: str) -> bool:
        """Whether a tenant may not store anything, by the last look."""
        room = self._rooms.get(tenant)
        return room is not None and any(_amount(each, room) >= each.most for each in room.bounds)

    def give_up(self, taken: Taken) -> None:
        """The state counts it from now on, or it never will."""
        for key, (messages, size) in taken.items():
            _count(self._coming, key, -messages, -size)

    def _rooms_of(
        self, state: GroupState, topic: TopicState
    ) -> Iterator[tuple[object, Room, int, int]]:
        """What bounds a topic: whose it is, and the (messages, bytes) that are stored now."""
        tenant, stored = topic.tenant, state.stored
        room = self._rooms.get(tenant)
        if room is not None:
            yield tenant, room, *room.now(state.group, stored.by_tenant.get(tenant))
        if self._topics and (room := self._topics.get(topic.id)) is not None:
            yield topic.id, room, *room.now(state.group, stored.by_topic.get(topic.id))


def _watch(state: GroupState, topics: Iterable[TopicId]) -> None:
    """Have a group count these topics by themselves, of those that have queues in it."""
    known = {ident for ident in topics if ident in state.topics}
    if state.stored.by_topic.keys() == known:
        return
    queues: dict[TopicId, list[QueueState]] = {}
    for ident in known:
        resized = state.resized.get(ident, ResizedTopic())
        here = resized.queues_here(ident, (ref.id for ref in state.topics[ident].refs))
        found = (state.queues.peek(each) for each in here)
        queues[ident] = [each for each in found if each is not None]
    state.stored.watch(queues)


def _are_several(states: Sequence[GroupState]) -> bool:
    """Whether more than one tenant has topics."""
    tenants: set[str] = set()
    for state in states:
        tenants.update(each for each in state.topic_names.tenants() if not is_servers_own(each))
        if len(tenants) > 1:
            return True
    return False


def too_much(topic: TopicState) -> KernelError:
    """What a publisher hears."""
    text = f"tenant {topic.tenant} stores as much as it may, or topic {topic.name} does"
    return KernelError(Code.REJECTED, text)


def _fitting(bound: Bound, messages: int, size: int, slot_bytes: Sequence[int]) -> int:
    """How many of some messages fit, from the first one on."""
    left = bound.most - bound.per_message * messages - bound.per_byte * size
    count = len(slot_bytes)
    each = bound.per_message - bound.per_byte * HEADER_BYTES
    if each * count + bound.per_byte * sum(slot_bytes) <= left:
        return count
    for at, slot in enumerate(slot_bytes):
        left -= each + bound.per_byte * slot
        if left < 0:
            return at
    return count


def _limits(quotas: Quotas, entity: Entity) -> list[Bound]:
    """What an operator has said."""
    limits, scope = quotas.limits_of(entity), entity.scope.value
    bounds: list[Bound] = []
    if limits.stored_messages is not None:
        reason = f"{scope}.{LimitKind.STORED_MESSAGES.value}"
        bounds.append(Bound(reason, 1, 0, limits.stored_messages))
    if limits.stored_bytes is not None:
        reason = f"{scope}.{LimitKind.STORED_BYTES.value}"
        bounds.append(Bound(reason, 0, 1, limits.stored_bytes))
    return bounds


def _amount(bound: Bound, room: Room) -> int:
    return bound.per_message * room.messages + bound.per_byte * room.size


def _count(taken: Taken, key: object, messages: int, size: int) -> None:
    known = taken.get(key, _NOTHING)
    left = known[0] + messages, known[1] + size
    if left[0] > 0:
        taken[key] = left
    else:
        taken.pop(key, None)
