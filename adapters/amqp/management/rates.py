"""How many messages a second are published to a queue, between two times that somebody looks.

Nothing is counted for this: a queue's offsets rise with every message. The first look at a queue
finds 0.0; whoever looks every 30 s, as autoscalers do, has the mean of those 30 s. RabbitMQ's is
that of the last 5 s, and looks nearer together than that are answered with the rate found before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WINDOW_MS: Final = 5_000
QUEUES_MAX: Final = 20_000
"""Queues looked at; the one that was looked at longest ago goes first: some MB."""


class _Look(NamedTuple):
    at_ms: int
    messages: int
    rate: float


class Rates:
    """Of queues, by tenant and name."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, str, int], _Look] = {}

    def look(self, tenant: str, name: str, version: int, count: int, now_ms: int) -> float:
        """Messages a second; `count`: of all since the queue was made, which `version` tells from
        another of its name.
        """
        key = (tenant, name, version)
        last = self._looks.pop(key, None)
        if last is None:
            last = _Look(now_ms, count, 0.0)
        elif now_ms - last.at_ms >= WINDOW_MS:
            seconds = (now_ms - last.at_ms) / 1000
            last = _Look(now_ms, count, max(0.0, (count - last.messages) / seconds))
        self._looks[key] = last
        if len(self._looks) > QUEUES_MAX:
            del self._looks[next(iter(self._looks))]
        return round(last.rate, 3)
