"""When a topic whose size is automatic grows and shrinks, between two sizes. Pure: what it is used
at each second in, decisions with their reasons out.

    STEADY    8 of the last 10 seconds are above the size        -> grow to 1.5 times what is used
              below a third of it, without a break, as long as
              CALM                                               -> shrink to 1.5 times the most
    CHANGING  until the resize is done; nothing is decided; if it fails, none for a minute

What keeps it from flapping: it shrinks only to a size that what was used while it was calm fills to
two thirds, and only if that is a third of today's or less. If it has to grow soon after it has
shrunk, it has to be calm for twice as long the next time (up to a day): so load that comes and goes
by the hour, however long its period, soon has its size kept. Use of bursts alone moves nothing.

What no size helps: one key has all its messages in one queue. A queue that is used much more than
its part counts only for HOT parts; if it would take more than that to be above the size, this is
said, and nothing grows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from .sizes import Size

WINDOW = 10
"""Seconds that are looked at."""

SUSTAINED = 8
"""So many of them above the size are no burst: it is decided in time for 10 s."""

HEADROOM = 1.5
"""Times what is used: what it may be used at then."""

CALM_PART = 1 / 3
"""Of the size: with HEADROOM what is left is half of it at most."""

CALM_MS = 60 * 60 * 1_000
CALM_MS_MAX = 24 * CALM_MS

AGAIN_MS = 60 * 60 * 1_000
"""What nothing can be done about is said again after so long."""

RETRY_MS = 60 * 1_000

GAP_MS = 3_000
"""Nobody has looked for so long: what was seen before says nothing of now."""

HOT = 2.0
"""Hashing alone gives a queue up to about twice its part."""


class What(StrEnum):
    """What is decided, or only said."""

    GROW = "grow"
    SHRINK = "shrink"
    AT_MAX = "at its largest"
    """It is used above the largest size."""
    HOT_KEY = "hot key"
    """It is used above its size by so few keys that none would help."""
    UNHEARD = "not known"
    """Not all its groups tell what is used: nothing is decided (`sizing`)."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a topic was used at in one second."""

    messages: float
    bytes: float
    busiest: float = 0.0
    """The part of it that went to one queue, the most: 0 to 1."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, or to be said."""

    what: What
    size: Size
    """The new one; if it is only said: that which stays."""
    why: str


class AutomaticSize:
    """Of one topic. Kept in the memory of whoever decides: another one begins anew, and is at worst
    WINDOW late.
    """

    __slots__ = (
        "_above_count",
        "_calm_least_ms",
        "_calm_ms",
        "_calm_since_ms",
        "_changing",
        "_last_ms",
        "_least",
        "_looks",
        "_most",
        "_not_before_ms",
        "_peak",
        "_queues",
        "_said_ms",
        "_seen",
        "_shrunk_ms",
        "size",
    )

    def __init__(
        self, least: Size, most: Size, size: Size, queues: int, calm_ms: int | None = None
    ) -> None:
        """`least`, `most`: the sizes between which it is, both with the same figures above 0;
        `queues`: how many the topic has; `calm_ms`: how long it is calm before it shrinks; None:
        CALM_MS.
        """
        self._least = least
        self._most = most
        self.size = size
        self._queues = queues
        self._seen: deque[tuple[Use, bool]] = deque(maxlen=WINDOW)
        """Of the last seconds, whether it was above the size."""
        self._above_count = 0
        self._looks = 0
        self._peak = Use(0.0, 0.0)
        """The most it was used at, WINDOW on average, since it is calm."""
        self._calm_since_ms: int | None = None
        self._calm_least_ms = self._calm_ms = calm_ms or CALM_MS
        self._shrunk_ms: int | None = None
        self._changing = False
        self._not_before_ms = 0
        self._last_ms: int | None = None
        self._said_ms: dict[What, int] = {}

    # --- What becomes of decisions ----------------------------------------------------------

    def resized(self, size: Size, queues: int, now_ms: int) -> None:
        """The topic has another size: as was decided, or as an operator wants it."""
        self.size, self._queues = size, queues
        self._changing = False
        self._forget()
        self._last_ms = now_ms

    def failed(self, now_ms: int) -> None:
        """What was decided could not be done."""
        self._changing = False
        self._not_before_ms = now_ms + RETRY_MS
        self._forget()

    # --- Seconds ----------------------------------------------------------------------------

    def look(self, use: Use, now_ms: int) -> Decision | None:
        """What the last second's use comes to. Asked once a second."""
        if self._last_ms is not None and not 0 <= now_ms - self._last_ms <= GAP_MS:
            self._forget()
        self._last_ms = now_ms
        is_above = self.size.part(use.messages, use.bytes) > 1
        seen = self._seen
        self._above_count += is_above - (len(seen) == WINDOW and seen[0][1])
        seen.append((use, is_above))
        self._looks += 1
        if self._changing or now_ms < self._not_before_ms or len(self._seen) < SUSTAINED:
            return None
        if self._above_count >= SUSTAINED:
            return self._above(now_ms)
        if self._above_count:
            self._restless()
            return None
        return self._below(now_ms) if self._looks % WINDOW == 0 else None

    def _above(self, now_ms: int) -> Decision | None:
        self._restless()
        mean = _mean([use for use, is_above in self._seen if is_above])
        part = self.size.part(mean.messages, mean.bytes)
        used = f"used at {part:.1f} times its size for {SUSTAINED} of {WINDOW} s"
        if self._helped(part, mean.busiest) <= 1:
            why = f"{used}; one queue has {mean.busiest:.0%} of it, by few keys: no size helps"
            return self._say(What.HOT_KEY, why, now_ms)
        size = Size(
            _between(self.size.messages, mean.messages, self._most.messages),
            _between(self.size.bytes, mean.bytes, self._most.bytes),
        )
        if size == self.size:
            return self._say(What.AT_MAX, f"{used}, which is its largest", now_ms)
        if self._shrunk_ms is not None and now_ms - self._shrunk_ms < 2 * self._calm_ms:
            self._calm_ms = min(CALM_MS_MAX, 2 * self._calm_ms)
        self._shrunk_ms = None
        self._changing = True
        return Decision(What.GROW, size, used)

    def _helped(self, part: float, busiest: float) -> float:
        """The part of the size that is used, as far as more queues would take a share of it."""
        if self._queues == 1:
            return part
        return part * (1 - busiest) + min(part * busiest, HOT / self._queues)

    def _below(self, now_ms: int) -> Decision | None:
        mean = _mean([use for use, _ in self._seen])
        if self.size.part(mean.messages, mean.bytes) > CALM_PART:
            self._restless()
            return None
        if self._calm_since_ms is None:
            self._calm_since_ms = now_ms  # what is seen now was before that in part
            return None
        most = self._peak
        self._peak = Use(max(most.messages, mean.messages), max(most.bytes, mean.bytes))
        calm_ms = now_ms - self._calm_since_ms
        if calm_ms < self._calm_ms:
            return None
        size = Size(
            min(self.size.messages, max(self._least.messages, self._peak.messages * HEADROOM)),
            min(self.size.bytes, max(self._least.bytes, self._peak.bytes * HEADROOM)),
        )
        part = self.size.part(self._peak.messages, self._peak.bytes)
        if size == self.size:
            return None
        if self._shrunk_ms is not None and now_ms - self._shrunk_ms >= 2 * self._calm_ms:
            self._calm_ms = self._calm_least_ms  # the last time was right
        self._shrunk_ms = now_ms
        self._changing = True
        why = f"used at {part:.0%} of its size at most for {calm_ms // 60_000} min"
        return Decision(What.SHRINK, size, why)

    def _restless(self) -> None:
        """It is not calm."""
        self._calm_since_ms = None
        self._peak = Use(0.0, 0.0)

    def _forget(self) -> None:
        self._seen.clear()
        self._above_count = 0
        self._restless()

    def _say(self, what: What, why: str, now_ms: int) -> Decision | None:
        said_ms = self._said_ms.get(what)
        if said_ms is not None and now_ms - said_ms < AGAIN_MS:
            return None
        self._said_ms[what] = now_ms
        return Decision(what, self.size, why)


def _mean(uses: list[Use]) -> Use:
    count = len(uses)
    return Use(
        sum([each.messages for each in uses]) / count,
        sum([each.bytes for each in uses]) / count,
        sum([each.busiest for each in uses]) / count,
    )


def _between(now: float, used: float, most: float) -> float:
    """A figure of a size that grows; one that bounds nothing goes on so."""
    return max(now, min(most, used * HEADROOM)) if now else 0.0
