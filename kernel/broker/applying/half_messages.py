"""Half messages: stored, but without an offset until they are committed
(docs/design/delivery.md#transactions).

    PREPARE -> waiting -> RESOLVE commit    its offset, an ordinary message from then on
                       -> RESOLVE rollback  gone
                       -> CHECK             its producers are asked; after the last question: gone

A half message holds one reference to the log entry that brought it. A commit hands that reference
to the queue: the body is never copied. Delay and TTL count from the commit. Priorities above the
topic's highest count as the highest, by the settings at the commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

from ...api.message import HEADER_BYTES
from ...api.model import TopicKind
from ...common.feature_levels import STORED
from ...common.ids import LogIndex, QueueId
from ...log.format import entry as entries
from ..group_state.halves import HalfMessage
from ..group_state.state import GroupState, Section
from ..group_state.usage import HALF_FEATURES, units_of
from ..index.features import COLUMN_KINDS, Feature, columns_of
from ..index.sizes import is_sized
from ..log_commands import commands
from ..log_commands.resize_commands import SEALED
from ..observer import Observer, Retention, release_all

ROLLED_BACK = -1
UNKNOWN = -2
"""Never prepared, resolved too long ago, or of a topic that is gone."""
OTHERWISE = -3
"""It has been resolved the other way."""


class HalfCommands:
    """Applies PREPARE, RESOLVE_HALF and CHECK_HALVES."""

    def __init__(self, state: GroupState, retention: Retention, observer: Observer) -> None:
        self._state = state
        self._halves = state.halves
        self._retention = retention
        self._observer = observer
        self.commands: dict[int, Callable[..., object]] = {
            commands.Command.RESOLVE_HALF: self.resolve,
            commands.Command.CHECK_HALVES: self.check,
        }

    def prepare(self, index: LogIndex, body: bytes, entry: bytes, origin: int) -> list[int]:
        """Keep half messages; the number of each, 0 if its queue is gone, SEALED."""
        state = self._state
        producers, runs = commands.decode_prepare(body)
        bounds = entries.directory(entry)
        numbers: list[int] = []
        kept = 0
        for ident, first, count, features in runs:
            queue = state.queues.get(QueueId(ident))
            if queue is None and not state.takes_nothing(QueueId(ident)):
                numbers += [0] * count
                continue
            if queue is None or queue.id in state.sealed:
                numbers += [SEALED] * count
                continue
            columns = columns_of(features | Feature.SIZE, entry, bounds[first : first + count])
            due_ms = state.time_ms + queue.topic.options.half.check_after_ms
            for at in range(count):
                slot = first + at
                half = HalfMessage(
                    self._halves.next,
                    queue.id,
                    index,
                    slot,
                    bounds[slot + 1] - bounds[slot],
                    producers,
                    tuple((int(feature), column[at]) for feature, column in columns.items()),
                    state.time_ms,
                    due_ms,
                    0,
                    origin,
                )
                self._halves.next += 1
                self._halves.put(half)
                numbers.append(half.number)
            kept += count
        if kept:
            self._retention.retain(state.group, index, kept)
        return numbers

    def resolve(self, command: commands.ResolveHalf) -> list[int]:
        """Commit (its offset) or roll back (ROLLED_BACK) a half message. A repeat hears the same;
        else UNKNOWN or OTHERWISE.
        """
        halves = self._halves
        half = halves.waiting.get(command.number)
        if half is None or half.queue != command.queue:
            known = halves.outcomes.get(command.number)
            if known is None or known[0] != command.queue:
                return [UNKNOWN]
            return [known[1] if (known[1] >= 0) == command.commit else OTHERWISE]
        return [self._commit(half) if command.commit else self._roll_back(half)]

    def check(self, command: commands.CheckHalves) -> list[int]:
        """Count a question for each that is due; roll back those asked often enough."""
        found: list[int] = []
        for number in command.numbers:
            half = self._halves.waiting.get(number)
            if half is None or half.due_ms > self._state.time_ms:
                continue
            options = self._state.queues[half.queue].topic.options.half
            if half.checks >= options.checks_max:
                self._roll_back(half)
                found.append(-number)
                continue
            self._state.changing(Section.HALVES, number)
            half.checks += 1
            self._halves.due_at(half, self._state.time_ms + options.check_interval_ms)
            found.append(number)
        return found

    def _commit(self, half: HalfMessage) -> int:
        state = self._state
        state.changing(Section.HALVES, half.number)
        state.changing(Section.QUEUES, half.queue)
        queue = state.queues[half.queue]
        values: dict[int, int] = dict(half.values)
        if Feature.PRIORITY in values:
            highest = queue.topic.options.priority_max
            values[Feature.PRIORITY] = min(values[Feature.PRIORITY], highest)
        if not is_sized(queue.topic.options):
            values.pop(Feature.SIZE, None)
        values[Feature.ORIGIN_INDEX] = half.index
        values[Feature.ORIGIN_SLOT] = half.slot
        columns = {
            feature: array(COLUMN_KINDS[feature], [value]) for feature, value in values.items()
        }
        size = half.size_bytes - HEADER_BYTES
        kept = size if state.feature_level >= STORED else 0
        offset = queue.index.append_with(state.applied, 0, 1, state.time_ms, columns, kept)
        state.stored.came(queue.topic, 1, kept)
        features, units = HALF_FEATURES, units_of([half.size_bytes])
        state.ledger.sent(queue.topic, state.applied, half.origin, features, 1, size, units)
        if (trace := queue.topic.trace) is not None:
            entry = half.index, half.slot
            trace.committed(state.group, half.queue, offset, entry, state.time_ms, half.origin)
        self._halves.resolved(half, offset)
        if not queue.groups and queue.topic.options.kind is not TopicKind.STREAM:
            release_all(self._retention.release, state, queue, offset, offset + 1)
        self._observer.appended(queue)
        return offset

    def _roll_back(self, half: HalfMessage) -> int:
        self._state.changing(Section.HALVES, half.number)
        self._halves.resolved(half, ROLLED_BACK)
        self._retention.release(self._state.group, half.index, 1)
        return ROLLED_BACK

    def give_up(self, index: int) -> int:
        """A log entry does not read: roll back the half messages in it. How many there were."""
        lost = list(self._halves.of_entry(index))
        for half in lost:
            self._roll_back(half)
        return len(lost)

    def drop_queues(self, queues: Iterable[QueueId]) -> None:
        """Queues are gone, and their half messages with them."""
        gone = set(queues)
        halves = self._halves
        for half in [each for each in halves.waiting.values() if each.queue in gone]:
            self._state.changing(Section.HALVES, half.number)
            halves.remove(half)
            self._retention.release(self._state.group, half.index, 1)
