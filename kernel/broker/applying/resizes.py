"""A topic gets other queues: its old ones are sealed, new ones succeed them (ADR 31).

    takes messages -> SEAL -> sealed: settles, leases, commits its own half messages
                           -> (the definition loses it) -> RETIRE -> gone, its number is free

    ADD_WINDOW: what its predecessors in other groups know of deduplication ids
    RESIZE makes a successor -> waits for each predecessor and consumer group -> DRAINED
                             -> waits for none of them

Every command can come twice, and says the same again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from ...api.model import QueueRef, TopicInfo
from ...common.errors import Code, KernelError
from ...common.feature_levels import GONE
from ...common.ids import (
    NUMBER_BITS,
    QUEUES_PER_TOPIC_MAX,
    Offset,
    QueueId,
    home_of,
    queue_id,
    topic_of,
)
from ...common.ring import in_turn
from ..group_state.deduplication import Recent, Seen
from ..group_state.progress import GroupProgress
from ..group_state.resized import Planned, ResizedTopic, Successor
from ..group_state.state import GroupState, QueueState, Section, TopicState
from ..log_commands.commands import Command
from ..log_commands.resize_commands import (
    NEEDED,
    NOT_THERE,
    STILL_NAMED,
    AddWindow,
    Drained,
    Plan,
    ReadWindow,
    Resize,
    Retire,
    Seal,
    SpreadPlan,
    SpreadResize,
    WindowPart,
)
from ..observer import Observer

PART_BYTES_MAX = 256 * 1024
"""Of the ids of a part of a window: an entry, and an answer, of moderate size."""


class Resizes:
    """Applies PLAN, SEAL, ADD_WINDOW, RESIZE, DRAINED and RETIRE."""

    def __init__(self, state: GroupState, observer: Observer) -> None:
        self._state = state
        self._observer = observer
        self.commands: dict[int, Callable[..., object]] = {
            Command.PLAN: self._plan,
            Command.SEAL: self._seal,
            Command.RESIZE: self._resize,
            Command.DRAINED: self._drained,
            Command.RETIRE: self._retire,
            Command.SPREAD_PLAN: self._plan,
            Command.SPREAD_RESIZE: self._resize,
            Command.READ_WINDOW: lambda command: window_part(state, command),
            Command.ADD_WINDOW: self._add_window,
        }

    def _resized(self, topic: TopicState) -> ResizedTopic:
        """What is known of a topic that is about to be changed."""
        self._state.changing(Section.TOPICS, topic.id)
        return self._state.resized.setdefault(topic.id, ResizedTopic())

    def _plan(self, command: Plan) -> KernelError | None:
        topic = self._state.topics.get(command.topic)
        if topic is None:
            return KernelError(Code.NOT_FOUND, f"no topic {command.topic:x}")
        resized, plan = self._resized(topic), Planned(command.ring, command.queues)
        if isinstance(command, SpreadPlan):
            plan = Planned(command.ring, command.queues, command.once)
        if resized.plan is not None and resized.plan != plan:
            return KernelError(Code.IN_USE, f"topic {topic.name} is being resized")
        resized.plan = plan
        return None

    def _seal(self, command: Seal) -> list[int]:
        state = self._state
        topic = state.topics.get(command.topic)
        ends: list[int] = []
        for number in command.queues:
            ident = queue_id(command.topic, number)
            queue = state.queues.get(ident) if topic is not None else None
            if topic is None or queue is None:
                ends.append(NOT_THERE)
                continue
            resized = self._resized(topic)
            if number not in resized.sealed:
                # Each half message that waits may take an offset yet, and nothing else may.
                resized.sealed[number] = queue.index.tail + state.halves.waiting_in(ident)
                state.sealed.add(ident)
            ends.append(resized.sealed[number])
        return ends

    def _add_window(self, command: AddWindow) -> int:
        # It is no part of the topic, which may not be known here before RESIZE.
        window = self._state.windows.get(command.queue)
        if window is None:
            if not command.rows:
                return 0
            window = self._state.windows[command.queue] = Recent()
        wanted = window.next_offset
        for row in command.rows:
            if row[1] >= wanted:  # else it was sent twice
                window.add(row)
        return window.next_offset

    def _resize(self, command: Resize) -> TopicInfo | KernelError:
        state = self._state
        topic = state.topics.get(command.topic)
        if topic is not None and command.version < topic.version:
            return topic.info()
        is_home = home_of(command.topic) == state.group
        if topic is None and is_home and state.feature_level >= GONE:
            return KernelError(Code.NOT_FOUND, f"topic {command.name} is gone")
        refs = {ref.id & NUMBER_BITS: ref for ref in command.queues}
        new = [each for each in command.successors if refs[each.number].group == state.group]
        made = state.resized[command.topic].successors if command.topic in state.resized else {}
        for each in new:
            ident = refs[each.number].id
            if ident in state.queues and (ident in state.sealed or each.number not in made):
                return KernelError(
                    Code.IN_USE, f"queue {each.number} of {command.name} is not gone"
                )
        if topic is None:
            topic = state.topics[command.topic] = TopicState(
                command.topic,
                command.tenant,
                command.name,
                command.version,
                command.options,
                command.queues,
                dict(command.groups),
            )
        resized = self._resized(topic)
        state.queues.take_up(topic)
        groups = {**topic.groups, **command.groups}
        once = command.once if isinstance(command, SpreadResize) else b""
        topic.resize(command.version, command.options, groups, command.queues, (command.ring, once))
        resized.offsets_from = max(resized.offsets_from, command.offsets_from)
        if resized.plan is not None and resized.plan.ring == command.ring:
            resized.plan = None
        resized.predecessors.update(
            (each.number, frozenset(each.predecessors)) for each in command.successors
        )
        for each in new:
            ident = refs[each.number].id
            if ident not in state.queues:
                self._make(resized, topic, ident, max(each.first, resized.offsets_from))
                resized.successors[each.number] = Successor(frozenset(each.predecessors))
        resized.keep_predecessors(refs)
        for ident in [each for each in state.windows if topic_of(each) == command.topic]:
            ref = refs.get(ident & NUMBER_BITS)
            if ref is None or ref.group == state.group:
                del state.windows[ident]
        if command.successors:
            last = in_turn([each.number for each in command.successors], resized.next_number)[-1]
            resized.next_number = (last + 1) % QUEUES_PER_TOPIC_MAX
        self._observer.queues_changed(topic)
        info = topic.info()
        if state.topic_names.get((topic.tenant, topic.name)) == topic.id:
            self._observer.topic_changed(info, removed=False)
        return info

    def _make(self, resized: ResizedTopic, topic: TopicState, ident: QueueId, first: int) -> None:
        """A queue whose messages begin at an offset: what is below counts as consumed."""
        self._state.changing(Section.QUEUES, ident)
        progresses = {name: GroupProgress(first) for name in topic.groups}
        queue = self._state.queues[ident] = QueueState(ident, topic, progresses)
        queue.index.tail = first
        queue.trimmed = Offset(first)
        resized.never_stored += first

    def _drained(self, command: Drained) -> bool:
        state = self._state
        topic = state.topics.get(topic_of(command.queue))
        resized = state.resized.get(topic_of(command.queue))
        successor = resized.successors.get(command.queue & NUMBER_BITS) if resized else None
        if topic is None or successor is None or command.group not in topic.groups:
            return False
        state.changing(Section.TOPICS, topic.id)
        drained = successor.drained.get(command.group, frozenset())
        successor.drained[command.group] = drained | {command.predecessor}
        queue = state.queues.get(command.queue)
        if queue is not None:
            self._observer.drained(queue, command.group)
        return True

    def _retire(self, command: Retire) -> int:
        state = self._state
        outcome = retirement(state, command.queue, state.time_ms)
        if outcome is not None:
            return outcome
        topic, number = state.topics[topic_of(command.queue)], command.queue & NUMBER_BITS
        resized = self._resized(topic)
        state.changing(Section.QUEUES, command.queue)
        queue = state.queues.pop(command.queue)
        assert queue is not None
        state.sealed.discard(queue.id)
        end = resized.sealed.pop(number)
        resized.successors.pop(number, None)
        resized.offsets_from = max(resized.offsets_from, end)
        resized.never_stored -= queue.index.tail
        self._observer.queues_removed([queue])
        return end


def retirement(state: GroupState, ident: QueueId, now_ms: int) -> int | None:
    """What a RETIRE comes to that changes nothing, at a log time; None: the queue goes."""
    topic, queue = state.topics.get(topic_of(ident)), state.queues.get(ident)
    if topic is None or queue is None:
        return NOT_THERE
    window_ms = topic.options.deduplication_ms or 0
    if (
        ident not in state.sealed
        or queue.needed()
        or state.halves.waiting_in(ident)
        or (queue.recent is not None and queue.recent.newest_ms > now_ms - window_ms)
    ):
        return NEEDED
    return STILL_NAMED if QueueRef(ident, state.group) in topic.refs else None


def window_part(state: GroupState, question: ReadWindow) -> WindowPart:
    """Some of what a queue of this group knows of deduplication ids: so much as is at most
    `rows_max` ids, and PART_BYTES_MAX if that is more than one.
    """
    queue, resized = state.queues.get(question.queue), state.resized.get(topic_of(question.queue))
    ends = resized.sealed if resized is not None else {}
    end = ends.get(question.queue & NUMBER_BITS, NOT_THERE)
    rows: list[Seen] = []
    if queue is None or queue.recent is None:
        return WindowPart(end, 0, rows)
    count, found = queue.recent.since(question.first)
    size = 0
    for row in islice(found, question.rows_max):
        size += len(row[0])
        if rows and size > PART_BYTES_MAX:
            break
        rows.append(row)
    return WindowPart(end, count - len(rows), rows)


def known_before(state: GroupState, queue: QueueState, ident: bytes) -> Seen | None:
    """What the predecessors of a queue know of a deduplication id. Those in this group are sealed,
    and stay until their windows are past; the others have told theirs (ADD_WINDOW).
    """
    topic = queue.topic
    resized = state.resized.get(topic.id)
    successor = resized.successors.get(queue.id & NUMBER_BITS) if resized is not None else None
    since_ms = state.time_ms - (topic.options.deduplication_ms or 0)
    for number in sorted(successor.predecessors) if successor is not None else ():
        predecessor = queue_id(topic.id, number)
        before = state.queues.get(predecessor)
        if before is not None:
            window = before.recent
        elif (window := state.windows.get(predecessor)) is not None:
            window.drop_until(since_ms)
        known = window.get(ident) if window is not None else None
        if known is not None and known[3] > since_ms:
            return known
    return None


def forget_before(state: GroupState, queue: QueueState) -> None:
    """Forget what the predecessors of a queue have told: those here have windows of their own."""
    resized = state.resized.get(queue.topic.id)
    successor = resized.successors.get(queue.id & NUMBER_BITS) if resized is not None else None
    for number in successor.predecessors if successor is not None else ():
        state.windows.pop(queue_id(queue.topic.id, number), None)
