"""What happens in this process, for who follows it: every structured log line, and every change
that somebody makes by the admin API. A bounded buffer in memory; what it had to let go of is said.

    number      rises by one; of this process, from 1
    time        as in the log, UTC
    level       info, warning, error
    event       what happened: `connection closed`, `alarm`, `leader`, `limit set`, `administered`
    facts       the fields of the line

Lines may come from threads: `add` takes one at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
from structlog.processors import TimeStamper

if TYPE_CHECKING:
    import structlog.typing

EVENTS_MAX: Final = 4_096
"""Events kept: a minute of a hundred connects a second, an hour of a quiet node."""

EVENT_BYTES_MAX: Final = 4_096
"""Of the facts of one, as JSON: with EVENTS_MAX of them 16 MiB at the very most."""


_stamp = TimeStamper(fmt="iso", utc=True)
"""As the log's lines are stamped."""


class Event(msgspec.Struct, frozen=True):
    """See the module's head."""

    number: int
    time: str
    level: str
    event: str
    facts: msgspec.Raw


class EventBuffer:
    """The last events of a process."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._number = 0
        self._lock = threading.Lock()

    def add(self, level: str, event: str, **facts: object) -> None:
        """Something has happened that the log does not say."""
        self._note(level, event, "", facts)

    def _note(self, level: str, event: str, time: str, facts: dict[str, object]) -> None:
        encoded = msgspec.json.encode(facts, enc_hook=str)
        if len(encoded) > EVENT_BYTES_MAX:
            encoded = msgspec.json.encode({"left_out_bytes": len(encoded)})
        time = time or str(_stamp(None, "", {})["timestamp"])
        with self._lock:
            self._number += 1
            raw = msgspec.Raw(encoded)
            self._events.append(Event(self._number, time, level, event[:EVENT_BYTES_MAX], raw))

    def line(
        self, _log: object, level: str, line: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """A processor of structlog: notes a line, and hands it on as it is."""
        facts = {str(name): value for name, value in line.items()}
        time, event = str(facts.pop("timestamp", "")), str(facts.pop("event", ""))
        facts.pop("level", None)
        self._note(level, event, time, facts)
        return line

    @property
    def last(self) -> int:
        """The number of the last event; 0: there was none."""
        return self._number

    def after(self, number: int, most: int) -> tuple[list[Event], int]:
        """The events after one, the oldest first, and how many of them are kept no more."""
        with self._lock:
            if not self._events or number >= self._number:
                return [], 0
            first = self._events[0].number
            begin = max(number + 1 - first, 0)
            lost = max(first - number - 1, 0)
            stop = min(begin + most, len(self._events))
            return [self._events[at] for at in range(begin, stop)], lost


EVENTS: Final = EventBuffer()
"""Of this process, as its log is."""
