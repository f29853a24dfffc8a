"""From windows to acknowledged flushes: the state machine, without I/O.

Rules:
- A record gets its seq when its flush is made, densely from 0 in an epoch, and never another.
- One flush is under way at a time. Until the log acknowledges it, it is sent again with the same
  bytes: the log drops an identity that it has, so a lost reply costs nothing and doubles nothing.
- Nothing is dropped for want of room. Windows that cannot be flushed merge with windows of their
  hour, then give up topic names (`__other`). Age and size are there to see; whether to go on
  serving with `over_limit` set is for the gateway to decide, not for its meter.
- A node whose epoch was fenced registers again and goes on with a new epoch. A flush that was
  sent once, and refused by the fence, is certain not to be in the log and is counted again. One
  whose earlier outcome is unknown may be in the log: its cumulative rows, which can repeat, are
  sent again, its other rows are given up. A crash or a fence may cost the operator one flush,
  never the customer.

                  registered           sent              acknowledged
    UNREGISTERED ------------> READY ---------> SENT ------------------> READY
                                                | unknown
                                                v          sent
                                              DOUBT ---------------> RESENT -- acknowledged -> READY
                                                ^                      |
                                                +------ unknown -------+
    fenced: SENT -> UNREGISTERED, all rows kept; RESENT -> UNREGISTERED, cumulative rows kept
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from metering.schema import HOUR_US, FlushId, Kind, encode
from metering.window import Window, to_batch

# Rows of one flush: about 4 ms to pack, 10 to 40 KB.
ROWS_PER_FLUSH_MAX = 1_024

# A minute of windows waits as it came; more are merged by hour, which no bill can tell.
WINDOWS_WAITING_MAX = 6

# About 100 MB. Beyond it the waiting windows give up their topic names.
ROWS_WAITING_MAX = 200_000

# From here on `over_limit` is set: an hour of counts would be lost by a crash.
AGE_LIMIT_US = HOUR_US


class State(Enum):
    UNREGISTERED = "unregistered"
    READY = "ready"
    SENT = "sent"
    DOUBT = "doubt"
    RESENT = "resent"


class Event(Enum):
    REGISTERED = auto()
    FLUSH_SENT = auto()
    ACKNOWLEDGED = auto()
    OUTCOME_UNKNOWN = auto()
    FENCED = auto()


_NEXT: dict[tuple[State, Event], State] = {
    (State.UNREGISTERED, Event.REGISTERED): State.READY,
    (State.READY, Event.FLUSH_SENT): State.SENT,
    (State.SENT, Event.ACKNOWLEDGED): State.READY,
    (State.SENT, Event.OUTCOME_UNKNOWN): State.DOUBT,
    (State.SENT, Event.FENCED): State.UNREGISTERED,
    (State.DOUBT, Event.FLUSH_SENT): State.RESENT,
    (State.RESENT, Event.ACKNOWLEDGED): State.READY,
    (State.RESENT, Event.OUTCOME_UNKNOWN): State.DOUBT,
    (State.RESENT, Event.FENCED): State.UNREGISTERED,
}


class CollectorError(RuntimeError):
    """The caller reported an event that the collector's state has no place for."""


@dataclass(frozen=True, slots=True)
class Flush:
    """One message for `__metering` and its identity."""

    flush_id: FlushId
    body: bytes


@dataclass(frozen=True, slots=True)
class CollectorStatistics:
    """State and backlog. Ages are in microseconds, counts since the process began."""

    state: State
    epoch: int
    windows_waiting: int
    rows_waiting: int
    age_us: int
    over_limit: bool
    flushes: int
    flushes_repeated: int
    rows_flushed: int
    windows_merged: int
    windows_folded: int
    rows_given_up: int


@dataclass(slots=True)
class _Underway:
    flush: Flush
    window: Window


class Collector:
    """The flushes of one node. Every method is synchronous and bounded."""

    def __init__(
        self, node: str, *, incarnation: int = 0, rows_per_flush_max: int = ROWS_PER_FLUSH_MAX
    ) -> None:
        """`incarnation`: of the log, drawn anew by each process that opens it."""
        self._node = node
        self._incarnation = incarnation
        self._rows_per_flush_max = rows_per_flush_max
        self._state = State.UNREGISTERED
        self._epoch = -1
        self._next_seq = 0
        self._waiting: deque[Window] = deque()
        self._underway: _Underway | None = None
        self._flushes = self._flushes_repeated = self._rows_flushed = 0
        self._windows_merged = self._windows_folded = self._rows_given_up = 0

    @property
    def state(self) -> State:
        return self._state

    def offer(self, window: Window) -> None:
        """Take over a closed window; it waits for its flush."""
        self._waiting.append(window)
        if len(self._waiting) > WINDOWS_WAITING_MAX:
            self._merge_by_hour()
        if self._rows_waiting() > ROWS_WAITING_MAX:
            for waiting in self._waiting:
                self._windows_folded += waiting.fold()

    def registered(self, epoch: int) -> None:
        """Registration granted `epoch`, which is higher than every earlier one of this node."""
        if epoch <= self._epoch:
            raise CollectorError(f"epoch {epoch} does not follow {self._epoch}")
        self._step(Event.REGISTERED)
        self._epoch = epoch
        self._next_seq = 0

    def next_flush(self, now_us: int) -> Flush | None:
        """What to send now: the flush in doubt with the same bytes, else a new one, else None."""
        if self._state is State.DOUBT and self._underway is not None:
            self._step(Event.FLUSH_SENT)
            self._flushes_repeated += 1
            return self._underway.flush
        if self._state is not State.READY or not self._waiting:
            return None
        window = self._waiting[0]
        part = Window(window.start_us, window.end_us, window.take(self._rows_per_flush_max))
        if not window.rows:
            self._waiting.popleft()
        batch = to_batch(
            part,
            part.rows,
            node=self._node,
            epoch=self._epoch,
            first_seq=self._next_seq,
            emitted_at_us=now_us,
            incarnation=self._incarnation,
        )
        flush = Flush(batch.flush_id, encode(batch))
        self._step(Event.FLUSH_SENT)
        self._underway = _Underway(flush, part)
        self._next_seq += batch.rows
        self._flushes += 1
        return flush

    def acknowledged(self, flush_id: FlushId) -> None:
        """The log has the flush, now or from an earlier sending."""
        if self._underway is None or self._underway.flush.flush_id != flush_id:
            raise CollectorError(f"{flush_id} is not under way")
        self._step(Event.ACKNOWLEDGED)
        self._rows_flushed += len(self._underway.window.rows)
        self._underway = None

    def outcome_unknown(self) -> None:
        """No answer, or one that does not say whether the log has the flush."""
        self._step(Event.OUTCOME_UNKNOWN)

    def fenced(self) -> None:
        """The log refused the flush because a higher epoch of this node is registered."""
        certain = self._state is State.SENT
        self._step(Event.FENCED)
        if self._underway is None:
            return
        window, self._underway = self._underway.window, None
        if not certain:
            kept = {key: row for key, row in window.rows.items() if key.kind == Kind.STORE}
            self._rows_given_up += len(window.rows) - len(kept)
            window.rows = kept
        if window.rows:
            self._waiting.appendleft(window)

    def drained(self) -> bool:
        """True if nothing waits and nothing is under way."""
        return not self._waiting and self._underway is None

    def statistics(self, now_us: int) -> CollectorStatistics:
        starts = [window.start_us for window in self._waiting]
        if self._underway is not None:
            starts.append(self._underway.window.start_us)
        age_us = max(0, now_us - min(starts)) if starts else 0
        return CollectorStatistics(
            state=self._state,
            epoch=self._epoch,
            windows_waiting=len(self._waiting),
            rows_waiting=self._rows_waiting(),
            age_us=age_us,
            over_limit=age_us > AGE_LIMIT_US or self._rows_waiting() > ROWS_WAITING_MAX,
            flushes=self._flushes,
            flushes_repeated=self._flushes_repeated,
            rows_flushed=self._rows_flushed,
            windows_merged=self._windows_merged,
            windows_folded=self._windows_folded,
            rows_given_up=self._rows_given_up,
        )

    def _step(self, event: Event) -> None:
        state = _NEXT.get((self._state, event))
        if state is None:
            raise CollectorError(f"{event.name} in state {self._state.name}")
        self._state = state

    def _rows_waiting(self) -> int:
        return sum(len(window.rows) for window in self._waiting)

    def _merge_by_hour(self) -> None:
        """One window an hour, in order of time."""
        merged: dict[int, Window] = {}
        for window in self._waiting:
            present = merged.setdefault(window.hour, window)
            if present is not window:
                present.absorb(window)
                self._windows_merged += 1
        self._waiting = deque(merged[hour] for hour in sorted(merged))
