"""A topic gets other queues (ADR 31), by the leader of its home.

    PLAN at home -> SEAL where the queues are that lose their keys
                 -> what they know of deduplication ids is where their successors will be
                 -> RESIZE where any queue is
                 -> RESIZE at home: the definition that everybody publishes by

The plan stands in the state of the home until the last step: whoever leads it next goes on, and
each step can be done twice. Successors are in the Raft group of their predecessors, which are all
in one: there the windows of deduplication and the results of batches are, so that a repeat is known
wherever it comes from. A topic that is spread has its successors anywhere: windows are copied
(`window_hand_over`), and by the first such resize it gets one queue more in each group that it was
in, for what may be repeated by another process (`TopicInfo.once`).

Durability: each step returns once its command is on disk; nothing is published to a successor
before the last.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from ..api.model import QueueRef, TopicInfo
from ..broker.group_state.resized import Planned, ResizedTopic
from ..broker.group_state.state import GroupState
from ..broker.log_commands import commands
from ..broker.log_commands.resize_commands import (
    NOT_THERE,
    STILL_NAMED,
    NewQueue,
    Plan,
    Resize,
    Retire,
    Seal,
    SpreadPlan,
    SpreadResize,
)
from ..common import ring as rings
from ..common.errors import Code, KernelError
from ..common.feature_levels import WINDOWS, is_off
from ..common.ids import NUMBER_BITS, Offset, RaftGroup, TopicId, home_of, queue_id
from . import definition_checks as checks
from .queue_placement import place_queues
from .window_hand_over import HandOvers, Propose, WindowHandOver


class Decide(Protocol):
    """Has the leader of a group in this process carry out a command; its result."""

    async def __call__(self, group: RaftGroup, command: commands.Control, /) -> object:
        """Raises its result if that is a KernelError."""


class Resizing:
    """Carries out resizes. The caller sees to it that a name is changed by one at a time."""

    def __init__(
        self, state_of: Callable[[RaftGroup], GroupState], decide: Decide, propose: Propose
    ) -> None:
        self._state_of = state_of
        self._decide = decide
        self._propose = propose

    async def resize(
        self,
        topic: TopicInfo,
        queues: int,
        *,
        by_key: bool,
        spread_over: Sequence[RaftGroup] = (),
    ) -> TopicInfo:
        """Have so many queues take messages (see `changes.ResizeTopic`); `spread_over`: in these
        groups, evenly, if there are any. Raises KernelError: NOT_ALLOWED, the topic keeps the
        queues it has, or the feature level is not on; INVALID_ARGUMENT; IN_USE, a number that is
        needed is not free.
        """
        checks.check_resize(topic, by_key=by_key)
        if self._resized(topic.id).plan is not None:
            topic = await self.go_on(topic.id)
        taken = {ref.id & NUMBER_BITS for ref in topic.queues}
        free = rings.free_numbers(taken, self._resized(topic.id).next_number)
        try:
            plan = _plan(topic, queues, free, spread_over)
        except ValueError as error:
            raise KernelError(Code.INVALID_ARGUMENT, str(error)) from None
        if plan is None:
            return topic
        if hand_overs := self._hand_overs(topic, plan):
            self._check_level(topic)
            await WindowHandOver(self._propose, hand_overs).check_size()
        await self._decide(home_of(topic.id), plan)
        return await self.go_on(topic.id)

    def _check_level(self, topic: TopicInfo) -> None:
        """NOT_ALLOWED for a topic with a window, before it is known to all what becomes of that."""
        if self._state_of(home_of(topic.id)).feature_level < WINDOWS:
            raise is_off(WINDOWS)

    def _hand_overs(self, topic: TopicInfo, plan: Plan | Planned) -> HandOvers:
        """Whose windows have to be known in which other groups by a plan."""
        if topic.options.deduplication_ms is None:
            return {}
        before = topic.ring or rings.first_ring(len(topic.queues))
        queues = {ref.id & NUMBER_BITS: ref for ref in (*topic.queues, *plan.queues)}
        found: dict[QueueRef, list[RaftGroup]] = {}
        for number, old in rings.predecessors(before, plan.ring).items():
            group = queues[number].group
            for each in sorted(self._all_before(topic.id, old)):
                groups = found.setdefault(queues[each], [])
                if queues[each].group != group and group not in groups:
                    groups.append(group)
        return {ref: groups for ref, groups in found.items() if groups}

    def _all_before(self, ident: TopicId, numbers: Collection[int]) -> frozenset[int]:
        """Queues, and those that are not gone of which these have keys."""
        known = self._resized(ident).predecessors
        return frozenset(numbers).union(*(known.get(each, ()) for each in numbers))

    async def go_on(self, ident: TopicId) -> TopicInfo:
        """Carry out the plan of a topic, if there is one."""
        home = home_of(ident)
        topic, resized = self._state_of(home).topics[ident].info(), self._resized(ident)
        plan = resized.plan
        if plan is None:
            return topic
        before = topic.ring or rings.first_ring(len(topic.queues))
        hand_overs = self._hand_overs(topic, plan)
        windows = WindowHandOver(self._propose, hand_overs)
        await windows.hand_over()
        sealed = {*rings.sealed(before, plan.ring), *(ref.id & NUMBER_BITS for ref in hand_overs)}
        ends = await self._seal(topic, sealed)
        await windows.hand_over({ref.id: ends[ref.id & NUMBER_BITS] for ref in hand_overs})
        made = rings.predecessors(before, plan.ring)
        if plan.once:
            made.update(rings.predecessors(before, plan.once))
        successors = tuple(
            NewQueue(
                number,
                Offset(max(ends[each] for each in old)),
                tuple(sorted(self._all_before(ident, old))),
            )
            for number, old in made.items()
        )
        grown = structs.replace(
            topic,
            version=topic.version + 1,
            queues=tuple(sorted((*topic.queues, *plan.queues), key=lambda ref: ref.id)),
            ring=plan.ring,
            once=plan.once or topic.once,
        )
        return await self._define(topic, _change(grown, resized.offsets_from, successors))

    async def let_go(self, topic: TopicInfo) -> TopicInfo:
        """Have the definition lose those sealed queues that everybody is done with: their groups
        may remove them then.
        """
        resized = self._resized(topic.id)
        if resized.plan is not None:
            return topic
        sealed = [ref for ref in topic.queues if ref not in topic.writable]
        outcomes = await asyncio.gather(
            *(self._propose(ref.group, Retire(ref.id)) for ref in sealed)
        )
        asked = dict(zip(sealed, outcomes, strict=True))
        done = [ref for ref in sealed if asked[ref] in (STILL_NAMED, NOT_THERE)]
        if not done:
            return topic
        ends = await self._seal(topic, {ref.id & NUMBER_BITS for ref in done})
        above = max(resized.offsets_from, *ends.values())
        if above > resized.offsets_from:
            # The home knows before anything is gone: who leads next must not begin below it.
            known = _change(structs.replace(topic, version=topic.version + 1), above)
            info = await self._decide(home_of(topic.id), known)
            assert isinstance(info, TopicInfo)
            topic = info
        left = tuple(ref for ref in topic.queues if ref not in done)
        shrunk = structs.replace(topic, version=topic.version + 1, queues=left)
        return await self._define(topic, _change(shrunk, above))

    async def _define(self, before: TopicInfo, change: Resize) -> TopicInfo:
        """Have a definition known wherever the topic has queues, or had; at home last. What was
        asked before may have been answered by another leader, after the topic was deleted.
        """
        home = home_of(before.id)
        if before.id not in self._state_of(home).topics:
            raise KernelError(Code.NOT_FOUND, f"topic {before.name} is gone")
        others = {ref.group for ref in (*before.queues, *change.queues)} - {home}
        await asyncio.gather(*(self._propose(each, change) for each in sorted(others)))
        info = await self._decide(home, change)
        assert isinstance(info, TopicInfo)
        return info

    def _resized(self, ident: TopicId) -> ResizedTopic:
        return self._state_of(home_of(ident)).resized.get(ident) or ResizedTopic()

    async def _seal(self, topic: TopicInfo, numbers: Collection[int]) -> dict[int, int]:
        """Seal queues, wherever they are; where each of them ends."""
        by_group: dict[RaftGroup, list[int]] = {}
        for ref in topic.queues:
            if ref.id & NUMBER_BITS in numbers:
                by_group.setdefault(ref.group, []).append(ref.id & NUMBER_BITS)
        results = await asyncio.gather(
            *(self._propose(group, Seal(topic.id, tuple(some))) for group, some in by_group.items())
        )
        ends: dict[int, int] = {}
        for some, result in zip(by_group.values(), results, strict=True):
            assert isinstance(result, list)
            ends.update(zip(some, result, strict=True))
        return ends

    def planned(self, groups: Collection[RaftGroup]) -> Iterator[TopicInfo]:
        """Topics of these homes whose resize is not finished. While one of them is carried out
        others are finished, or deleted.
        """
        for group in groups:
            for ident in list(self._state_of(group).resized):
                state = self._state_of(group)
                is_planned = ident in state.resized and state.resized[ident].plan is not None
                if is_planned and ident in state.topics and home_of(ident) == group:
                    yield state.topics[ident].info()


def _change(topic: TopicInfo, offsets_from: int, successors: tuple[NewQueue, ...] = ()) -> Resize:
    fields = (
        topic.id,
        topic.version,
        topic.tenant,
        topic.name,
        topic.options,
        topic.groups,
        topic.queues,
        topic.ring,
        Offset(offsets_from),
        successors,
    )
    return SpreadResize(*fields, topic.once) if topic.once else Resize(*fields)


def _plan(
    topic: TopicInfo, queues: int, free: Sequence[int], spread_over: Sequence[RaftGroup]
) -> Plan | None:
    """How a topic gets so many queues; None: it has them. Raises ValueError: it cannot."""
    before = topic.ring or rings.first_ring(len(topic.queues))
    group_of = {ref.id & NUMBER_BITS: ref.group for ref in topic.queues}
    # What has to stay in its group has queues of its own in one that was spread.
    after = rings.resized(before, queues, free, {} if spread_over or topic.once else group_of)
    once = b""
    if spread_over and not topic.once:
        # All of it begins anew: what goes to a queue for repeats is ordered behind what is sealed.
        for number in sorted(frozenset(before) & frozenset(after)):
            after = rings.moved(after, number, free)
        once = rings.one_each(before, group_of, [each for each in free if each not in after])
    elif spread_over:
        after = _evened(after, group_of, free, len(spread_over))
    made = rings.predecessors(before, after)
    if not made:
        return None
    places = {number: group_of[min(old)] for number, old in made.items()}
    if spread_over:
        stay = Counter(group_of[each] for each in frozenset(before) & frozenset(after))
        loads = {each: float(stay[each]) for each in spread_over}
        found = place_queues(spread_over[0], spread_over, len(made), loads, queue_load=1.0)
        places = dict(zip(made, found, strict=True))
    for number, old in rings.predecessors(before, once).items() if once else ():
        places[number] = group_of[min(old)]
    refs = tuple(QueueRef(queue_id(topic.id, each), group) for each, group in places.items())
    return SpreadPlan(topic.id, after, refs, once) if once else Plan(topic.id, after, refs)


def _evened(
    ring: bytes, group_of: Mapping[int, RaftGroup], free: Sequence[int], groups: int
) -> bytes:
    """The ring with successors for those queues of which a group has more than its share."""
    most = -(-len(frozenset(ring)) // groups)
    stay: Counter[RaftGroup] = Counter()
    for number in sorted(frozenset(ring) & group_of.keys()):
        stay[group_of[number]] += 1
        if stay[group_of[number]] > most:
            ring = rings.moved(ring, number, free)
    return ring
