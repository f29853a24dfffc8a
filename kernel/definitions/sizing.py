"""Has topics of automatic size resized: by the leader of each one's home, so that many of them are
the work of many stores.

    once a second, of every topic with a size whose home is led here:
      each group that has queues of it   what was stored so far, by queue (`PeerStores.used`)
      what is new since the last second  -> `AutomaticSize.look` -> a resize, or something to say

What is remembered is what was used in the last seconds, and since when it is calm. Another leader
begins anew: it is 10 s late with a decision to grow, and an hour with one to shrink. How large a
topic is stands nowhere: it is the number of its queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..api.changes import PutRecord, ResizeTopic
from ..api.model import TopicInfo
from ..broker.group_state.idle_record import IdleQueue
from ..broker.group_state.state import GroupState
from ..broker.group_state.topic_usage import usage_sums
from ..common.errors import KernelError
from ..common.ids import NUMBER_BITS, QueueId, RaftGroup, TopicId
from ..requests.peer_stores import TopicUse, Used
from ..store.node import Store
from .automatic_size import AGAIN_MS, GAP_MS, AutomaticSize, Decision, Use, What
from .sizes import Size, queues_for
from .topic_records import KeptRecords, Name
from .topic_sizes import PREFIX, TopicSize, decode

SILENT_MS = 30_000
"""So long leaders may be away: an election takes a second or two, a store that is started anew ten.
After that it is said that nothing is decided."""

_UNHEARD = "unheard"
_NO_USE = Use(0.0, 0.0)
_NAMED_MAX = 8


def used_in(state: GroupState, topics: Iterable[TopicId]) -> dict[TopicId, TopicUse]:
    """What is stored of some topics in a group, by its leader's state."""
    found: dict[TopicId, TopicUse] = {}
    for ident in topics:
        topic = state.topics.get(ident)
        if topic is not None:
            tails = {each & NUMBER_BITS: _tail(state, each) for each in _queues(state, ident)}
            found[ident] = TopicUse(usage_sums(topic.usage).published_bytes, tails)
    return found


def _queues(state: GroupState, ident: TopicId) -> list[QueueId]:
    return [ref.id for ref in state.topics[ident].refs if ref.group == state.group]


def _tail(state: GroupState, ident: QueueId) -> int:
    queue = state.queues.live.get(ident)
    if queue is not None:
        return queue.index.tail
    idle = state.queues.raw(ident)
    return idle.tail if isinstance(idle, IdleQueue) else 0


@dataclass(slots=True)
class _Sized:
    """One topic, as long as its home is led here."""

    topic: TopicId
    size: TopicSize
    machine: AutomaticSize
    queues: int
    bytes: dict[RaftGroup, int] = field(default_factory=dict)
    """As last heard of each group, as the next."""
    tails: dict[int, int] = field(default_factory=dict)
    heard_ms: int = 0
    """When that was; 0: never."""
    is_resizing: bool = False
    told_ms: dict[str, int] = field(default_factory=dict)
    use: Use = _NO_USE
    """In the last second that is known."""
    unheard: tuple[RaftGroup, ...] = ()
    """Groups that have not answered last."""
    silent_ms: int = 0
    """Since when not all of them have; 0: they have."""


class Figures(NamedTuple):
    """One topic, for metrics."""

    tenant: str
    name: str
    size: TopicSize
    now: Size
    """That of the queues it has."""
    use: Use
    """Of the last second that is known."""
    is_unheard: bool
    """Whether somebody has not told what is used: nothing is decided then."""


class Sizing:
    """Of one store. Asked each second."""

    def __init__(
        self,
        store: Store,
        topic: Callable[[Name], TopicInfo | None],
        used: Callable[[RaftGroup, Collection[TopicId]], Awaitable[Used]],
        administer: Callable[[PutRecord | ResizeTopic], Awaitable[object]],
        now_ms: Callable[[], int],
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """`used` asks the leader of a group, here or elsewhere; `now_ms`: of a clock that only goes
        on.
        """
        self._used = used
        self._administer = administer
        self._now_ms = now_ms
        self._background = background
        self._records = KeptRecords(PREFIX, decode, store, topic, administer, now_ms, background)
        self._sized: dict[Name, _Sized] = {}
        self._is_looking = False
        self.calm_ms: int | None = None
        """See `AutomaticSize`."""
        self.tell: Callable[[TopicInfo, What | None, str], None] = lambda _topic, _what, _why: None
        """Hears what is decided and why (None: it could not be done), and what there is to say."""

    # --- Records ----------------------------------------------------------------------------

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record has changed (version, value) or (None) was removed."""
        self._records.changed(key, record)

    # --- Seconds ----------------------------------------------------------------------------

    def look(self) -> None:
        """Ask about every topic that is looked after here, unless that is still going on."""
        if self._records.known and not self._is_looking:
            self._is_looking = True
            self._background(self._look())
        elif not self._records.known:
            self._sized.clear()

    async def _look(self) -> None:
        try:
            topics = self._looked_after()
            asked: dict[RaftGroup, list[TopicId]] = {}
            for topic in topics.values():
                for group in {ref.group for ref in topic.writable}:
                    asked.setdefault(group, []).append(topic.id)
            answers = await asyncio.gather(*(self._ask(*each) for each in asked.items()))
            heard = dict(zip(asked, answers, strict=True))
            now_ms = self._now_ms()
            for name, topic in topics.items():
                groups = {ref.group for ref in topic.writable}
                found = {group: heard[group].get(topic.id) for group in groups}
                known = {group: use for group, use in found.items() if use is not None}
                if len(known) == len(groups):
                    self._heard(name, topic, known, now_ms)
                else:
                    self._unheard(name, topic, groups - known.keys(), now_ms)
        finally:
            self._is_looking = False

    async def _ask(self, group: RaftGroup, topics: list[TopicId]) -> Used:
        try:
            return await self._used(group, topics)
        except KernelError:
            return {}  # nobody leads it, or an older build does: what is not known decides nothing

    def _looked_after(self) -> dict[Name, TopicInfo]:
        """Topics whose home is led here; what is remembered of others is forgotten."""
        found: dict[Name, TopicInfo] = {}
        for name, topic, size in self._records.look():
            found[name] = topic
            queues = len(topic.writable)
            known = self._sized.get(name)
            if known is None or (known.topic, known.size) != (topic.id, size):
                bounds = size.least, size.most
                machine = AutomaticSize(*bounds, size.of(queues), queues, self.calm_ms)
                self._sized[name] = _Sized(topic.id, size, machine, queues)
            elif known.queues != queues and not known.is_resizing:
                known.queues = queues  # somebody else has resized it
                known.machine.resized(size.of(queues), queues, self._now_ms())
        for gone in self._sized.keys() - found.keys():
            del self._sized[gone]
        return found

    # --- One topic --------------------------------------------------------------------------

    def _heard(
        self, name: Name, topic: TopicInfo, uses: Mapping[RaftGroup, TopicUse], now_ms: int
    ) -> None:
        """What was stored so far: by what is new, and when it was heard before, a second's use."""
        sized = self._sized[name]
        past_ms = now_ms - sized.heard_ms
        tails = {number: tail for use in uses.values() for number, tail in use.tails.items()}
        told = {group: use.bytes for group, use in uses.items()}
        # Where a queue began that is new is not known: that second says less than was used.
        is_whole = tails.keys() <= sized.tails.keys() and told.keys() <= sized.bytes.keys()
        is_fresh = bool(sized.heard_ms) and 0 < past_ms <= GAP_MS and is_whole
        before, sized.tails = sized.tails, tails
        bytes_before, sized.bytes = sized.bytes, told
        sized.heard_ms, sized.unheard, sized.silent_ms = now_ms, (), 0
        if not is_fresh or sized.is_resizing:
            return
        new = [max(0, tail - before[number]) for number, tail in tails.items()]
        size = sum(max(0, each - bytes_before[group]) for group, each in told.items())
        messages = sum(new)
        busiest = max(new) / messages if messages else 0.0
        use = sized.use = Use(messages * 1_000 / past_ms, size * 1_000 / past_ms, busiest)
        decision = sized.machine.look(use, now_ms)
        if decision is not None:
            self._decided(sized, topic, decision, now_ms)

    def _unheard(
        self, name: Name, topic: TopicInfo, silent: Collection[RaftGroup], now_ms: int
    ) -> None:
        """Some groups have not told what is used: nothing is decided, and after a while said."""
        sized = self._sized[name]
        sized.unheard = tuple(sorted(silent))
        sized.silent_ms = sized.silent_ms or now_ms
        last_ms = sized.told_ms.get(_UNHEARD)
        is_due = last_ms is None or now_ms - last_ms >= AGAIN_MS
        if now_ms - sized.silent_ms >= SILENT_MS and is_due:
            sized.told_ms[_UNHEARD] = now_ms
            some = ", ".join(map(str, sized.unheard[:_NAMED_MAX]))
            more = "" if len(sized.unheard) <= _NAMED_MAX else ", ..."
            why = f"Raft groups {some}{more} have not told for {SILENT_MS // 1_000} s what is used"
            self.tell(topic, What.UNHEARD, why)

    def figures(self) -> Iterator[Figures]:
        """Of each topic with a size whose home is led here."""
        for name, sized in self._sized.items():
            now = sized.size.of(sized.queues)
            yield Figures(*name, sized.size, now, sized.use, bool(sized.unheard))

    def _decided(self, sized: _Sized, topic: TopicInfo, decision: Decision, now_ms: int) -> None:
        if decision.what not in (What.GROW, What.SHRINK):
            self.tell(topic, decision.what, decision.why)
            return
        queues = sized.size.clamp(queues_for(decision.size))
        if queues == sized.queues:  # a queue more or less would be too much
            sized.machine.resized(sized.size.of(queues), queues, now_ms)
            return
        sized.is_resizing = True
        self._background(self._resize(sized, topic, decision, queues))

    async def _resize(
        self, sized: _Sized, topic: TopicInfo, decision: Decision, queues: int
    ) -> None:
        wanted = sized.size
        change = ResizeTopic(topic.tenant, topic.name, queues, wanted.by_key, wanted.spread)
        try:
            await self._administer(change)
        except KernelError as error:
            now_ms = self._now_ms()
            sized.machine.failed(now_ms)
            last_ms = sized.told_ms.get(error.message)
            if last_ms is None or now_ms - last_ms >= AGAIN_MS:
                sized.told_ms = {error.message: now_ms}
                self.tell(topic, None, f"{decision.why}, but {error.message}")
        else:
            sized.queues = queues
            sized.machine.resized(wanted.of(queues), queues, self._now_ms())
            self.tell(topic, decision.what, decision.why)
        finally:
            sized.is_resizing = False
