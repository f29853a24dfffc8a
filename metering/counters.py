"""The gateway's meter: plain integers on handles that connections keep.

A connection or queue resolves a handle once (`Meter.counter`) and then calls it per message or,
better, once per batch: no look-up, no clock, no lock, no I/O. A handle that counts for the first
time in a window enters itself in the window's list of touched handles; closing the window takes
that list away and puts an empty one in its place, so the cost is that of the handles that counted
and not of those that exist.

Time is passed in. Windows divide the hours of UTC, so none crosses one; a window closed late
keeps its own label, and what came in meanwhile is in it (at most the lateness of the caller). If
the clock is set back, the open window closes and the next has the label of the new time: labels
may then repeat, identities never do.

Cardinality: a tenant has KEYS_PER_TENANT_MAX keys in an activity span (5 to 10 minutes) and all
tenants KEYS_MAX; a key beyond that counts under the topic and group `__other`. No count is lost
by it, only the name. Keys without activity are forgotten; a handle that still exists goes on
counting, and its key is known again from then on.

All of it belongs to one event loop: nothing here may be called from another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel.api.message import HEADER_BYTES
from kernel.broker.group_state.usage import units_of
from metering.schema.record import CLOSED_COLUMNS, HOUR_US, TEXT_BYTES_MAX, Action, Kind
from metering.window import RowKey, RowValues, Window, combine, fold_key

if TYPE_CHECKING:
    from collections.abc import Sequence

# Unless a meter is told another length, which must divide an hour: a crash loses little, and
# flushing costs nothing.
WINDOW_US = 10_000_000

# One tenant may not fill the meter: 2,000 active keys are 12,000 rows a minute, and closing a
# window takes 1.5 us for each key that counted.
KEYS_PER_TENANT_MAX = 2_000

# All tenants together: about 10 MB of handles and, if all are active, 20 flushes a window.
KEYS_MAX = 20_000

UNIT_64K = 65_536

# Keys that were not touched for between one and two spans are forgotten.
ACTIVITY_SPAN_WINDOWS = 30


def units_4k(size_bytes: int) -> int:
    """The 4 KiB units of one message; an empty message is one unit."""
    return (size_bytes + 4095) >> 12 or 1


def measure_slots(slots: Sequence[bytes]) -> tuple[int, int]:
    """(bytes, 4 KiB units) of stored messages, as the state machine counts them: properties and
    body, without the fixed header.
    """
    sizes = list(map(len, slots))
    return sum(sizes) - HEADER_BYTES * len(sizes), units_of(sizes)


def units_64k(size_bytes: int) -> int:
    """The 64 KiB units of one call."""
    return (size_bytes + UNIT_64K - 1) // UNIT_64K or 1


class Counter:
    """Counts one key. Get it from `Meter.counter`, keep it, call it."""

    __slots__ = (
        "_meter",
        "_outbound",
        "bytes_in",
        "bytes_out",
        "idle",
        "key",
        "messages",
        "more_units_64k",
        "requests",
        "size_bytes",
        "units_4k",
    )

    def __init__(self, meter: Meter, key: RowKey) -> None:
        self.key = key
        self._meter = meter
        self.idle = True
        self._outbound = key.action in (Action.DELIVER, Action.RETURN)
        self.requests = 0
        self.more_units_64k = 0  # beyond the one that each call is
        self.messages = self.units_4k = self.size_bytes = 0
        self.bytes_in = self.bytes_out = 0

    def count_one(self, size_bytes: int) -> None:
        """One message; its bytes are egress if what the key counts goes out, else ingress."""
        if self.idle:
            self.touch()
        self.messages += 1
        self.size_bytes += size_bytes
        self.units_4k += (size_bytes + 4095) >> 12 or 1

    def count(self, messages: int, size_bytes: int, units_4k: int) -> None:
        """A batch of messages: their number, the sum of their sizes, and of their units."""
        if self.idle:
            self.touch()
        self.messages += messages
        self.size_bytes += size_bytes
        self.units_4k += units_4k

    def call(self, bytes_in: int, bytes_out: int) -> None:
        """One call of an API with the bytes of its request and response bodies."""
        if self.idle:
            self.touch()
        self.requests += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        if bytes_in + bytes_out > UNIT_64K:
            # Rarely: so one comparison does for both.
            self.more_units_64k += units_64k(max(bytes_in, bytes_out)) - 1

    def octets(self, bytes_in: int, bytes_out: int) -> None:
        """Octets that came and went, and nothing else."""
        if self.idle:
            self.touch()
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def touch(self) -> None:
        """The first count in this window is about to be made: for those that count in line."""
        self.idle = False
        self._meter.touched(self)

    def _take(self) -> RowValues:
        """The values since the last take, which are zero from now on."""
        inbound, outbound = self.bytes_in, self.bytes_out
        if self._outbound:
            outbound += self.size_bytes
        else:
            inbound += self.size_bytes
        calls, units = self.requests, self.requests + self.more_units_64k
        values = RowValues(calls, units, self.units_4k, self.messages, inbound, outbound)
        self.requests = self.more_units_64k = 0
        self.messages = self.units_4k = self.size_bytes = 0
        self.bytes_in = self.bytes_out = 0
        self.idle = True
        return values


class Gauge:
    """A level over time, such as connections: its peak, and its sum over time."""

    __slots__ = ("_area", "_peak", "_since_us", "key", "level")

    def __init__(self, key: RowKey, now_us: int) -> None:
        self.key = key
        self.level = 0
        self._peak = 0
        self._area = 0
        self._since_us = now_us

    def set(self, level: int, now_us: int) -> None:
        """The level is `level` (>= 0) from now on."""
        self._advance(now_us)
        self.level = level
        self._peak = max(self._peak, level)

    def _advance(self, now_us: int) -> None:
        # A clock that went back adds nothing; the time is counted once it has caught up.
        elapsed_us = now_us - self._since_us
        if elapsed_us > 0:
            self._area += self.level * elapsed_us
            self._since_us = now_us

    def _take(self, until_us: int) -> RowValues:
        """Peak, and level times whole seconds; the rest of a second stays for the next window."""
        self._advance(until_us)
        unit_seconds, self._area = divmod(self._area, 1_000_000)
        values = RowValues(gauge_max=self._peak, gauge_integral=unit_seconds)
        self._peak = self.level
        return values


@dataclass(frozen=True, slots=True)
class MeterStatistics:
    """Keys known now, how often a key was folded into `__other`, and the open window's start."""

    keys: int
    gauges: int
    folded: int
    window_start_us: int


class Meter:
    """All counters of one gateway process, and the window that is open."""

    def __init__(
        self,
        now_us: int,
        *,
        window_us: int = WINDOW_US,
        keys_max: int = KEYS_MAX,
        keys_per_tenant_max: int = KEYS_PER_TENANT_MAX,
    ) -> None:
        """Raises ValueError unless `window_us` divides an hour."""
        if window_us <= 0 or HOUR_US % window_us:
            raise ValueError(f"a window of {window_us} us does not divide an hour")
        self.window_us = window_us
        self._keys_max = keys_max
        self._keys_per_tenant_max = keys_per_tenant_max
        self._window_start_us = now_us - now_us % window_us
        # Handles that counted in the open window.
        self._touched: list[Counter] = []
        # Keys active in this span and in the one before it: two dicts in turn need no scan.
        self._active: dict[RowKey, Counter] = {}
        self._fading: dict[RowKey, Counter] = {}
        self._keys_of_tenant: dict[str, int] = {}
        self._windows_in_span = 0
        self._gauges: dict[RowKey, Gauge] = {}
        self._folded = 0

    def counter(self, key: RowKey) -> Counter:
        """The handle that counts `key`, or the one of its `__other` when keys are used up.

        Raises ValueError for a key that no record can hold: a value outside its closed set, a
        text other than topic and group over 255 bytes. (A long topic or group is folded.)
        """
        handle = self._active.get(key)
        if handle is None:
            handle = self._fading.get(key)
            if handle is None:
                handle = self._new_counter(key)
            self._enter(handle)
        return handle

    def gauge(self, key: RowKey, now_us: int) -> Gauge:
        """The level of `key` (kind=gauge). Gauges are few: one a tenant, protocol and action."""
        assert key.kind == Kind.GAUGE
        key = fold_key(key)
        gauge = self._gauges.get(key)
        if gauge is None:
            gauge = self._gauges[key] = Gauge(key, now_us)
        return gauge

    def touched(self, handle: Counter) -> None:
        """A handle counts for the first time in this window. For Counter only."""
        self._touched.append(handle)
        if self._active.get(handle.key) is not handle:
            self._enter(handle)

    def window_start_us(self) -> int:
        """Where the open window begins; it is due to be closed `window_us` later."""
        return self._window_start_us

    def roll(self, now_us: int) -> Window | None:
        """Close the open window if `now_us` is outside it; its rows, None if there are none."""
        start_us = self._window_start_us
        if start_us <= now_us < start_us + self.window_us:
            return None
        window = self._close(start_us + self.window_us)
        self._window_start_us = now_us - now_us % self.window_us
        self._windows_in_span += 1
        if self._windows_in_span >= ACTIVITY_SPAN_WINDOWS:
            self._next_span()
        return window

    def close(self, now_us: int) -> Window | None:
        """Close the open window now, before its time: for a drain. Counting may go on."""
        end_us = min(max(now_us, self._window_start_us + 1), self._window_start_us + self.window_us)
        return self._close(end_us)

    def statistics(self) -> MeterStatistics:
        keys = len(self._active.keys() | self._fading.keys())
        return MeterStatistics(keys, len(self._gauges), self._folded, self._window_start_us)

    def _close(self, end_us: int) -> Window | None:
        touched, self._touched = self._touched, []
        rows: dict[RowKey, RowValues] = {}
        for handle in touched:
            key, values = handle.key, handle._take()
            # Two handles of one key exist when a key was forgotten while a connection kept it.
            present = rows.get(key)
            rows[key] = values if present is None else combine(key, present, values)
        for key, gauge in self._gauges.items():
            values = gauge._take(end_us)
            if values.gauge_max or values.gauge_integral:
                rows[key] = values
        return Window(self._window_start_us, end_us, rows) if rows else None

    def _new_counter(self, key: RowKey) -> Counter:
        _check(key)
        longest = max(len(key.topic.encode()), len(key.group.encode()))
        full = (
            len(self._active) >= self._keys_max
            or self._keys_of_tenant.get(key.tenant, 0) >= self._keys_per_tenant_max
        )
        if not full and longest <= TEXT_BYTES_MAX:
            return Counter(self, key)
        self._folded += 1
        folded = fold_key(key)
        known = self._active.get(folded) or self._fading.get(folded)
        return known or Counter(self, folded)

    def _enter(self, handle: Counter) -> None:
        if handle.key not in self._active:
            tenant = handle.key.tenant
            self._keys_of_tenant[tenant] = self._keys_of_tenant.get(tenant, 0) + 1
        self._active[handle.key] = handle

    def _next_span(self) -> None:
        self._fading = self._active
        self._active = {}
        self._keys_of_tenant = {}
        self._windows_in_span = 0


def _check(key: RowKey) -> None:
    for name, value in zip(RowKey._fields, key, strict=True):
        if not isinstance(value, str) or name in {"topic", "group"}:
            continue
        if value not in CLOSED_COLUMNS.get(name, (value,)):
            raise ValueError(f"unknown {name}: {value}")
        if len(value.encode()) > TEXT_BYTES_MAX:
            raise ValueError(f"{name} is longer than {TEXT_BYTES_MAX} bytes")
