"""Deadlines and heartbeats of a connection, as values: time comes in, a verdict goes out.

Heartbeats (AMQP 0-9-1 section 2.3.7): with an agreed interval of n seconds we send something at
least every n/2 seconds, and a peer that sent nothing for 2n seconds is gone. Any octet counts.
While we do not read on purpose, silence is our own doing and proves nothing.
"""

from __future__ import annotations

from enum import Enum, auto


class Verdict(Enum):
    """What time has made necessary."""

    NOTHING = auto()
    BEAT = auto()
    """Send a heartbeat."""
    SILENT = auto()
    """The peer is gone."""
    LATE = auto()
    """A deadline has passed."""


class Liveness:
    """What is known of a connection's time. All times are milliseconds of one monotonic clock."""

    __slots__ = ("_interval_ms", "_last_in_ms", "_last_out_ms", "_seen_in", "_seen_out", "deadline")

    def __init__(self, now_ms: int, deadline_ms: int) -> None:
        self.deadline: int | None = deadline_ms
        """When something must have happened: the handshake, the answer to our goodbye."""
        self._interval_ms = 0
        self._seen_in = self._seen_out = 0
        self._last_in_ms = self._last_out_ms = now_ms

    def agreed(self, heartbeat_s: int) -> None:
        """The interval is settled; 0 is off."""
        self._interval_ms = heartbeat_s * 1000

    def check(self, now_ms: int, bytes_in: int, bytes_out: int, *, is_held: bool) -> Verdict:
        """Called about once a second with the octets received and sent so far.

        `is_held`: we are not reading, on purpose.
        """
        if self.deadline is not None and now_ms >= self.deadline:
            return Verdict.LATE
        if bytes_in != self._seen_in or is_held:
            self._seen_in = bytes_in
            self._last_in_ms = now_ms
        if bytes_out != self._seen_out:
            self._seen_out = bytes_out
            self._last_out_ms = now_ms
        interval_ms = self._interval_ms
        if not interval_ms:
            return Verdict.NOTHING
        if now_ms - self._last_in_ms > 2 * interval_ms:
            return Verdict.SILENT
        return Verdict.BEAT if now_ms - self._last_out_ms >= interval_ms // 2 else Verdict.NOTHING
