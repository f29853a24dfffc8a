"""A timer that fires within microseconds, on any event loop.

uvloop and epoll round delays to whole milliseconds, which would be most of the latency that an
open-loop test of a fast broker measures. Linux's timerfd does not round, and an event loop waits
for it as for any file. Python has it from 3.13 on (os.timerfd_create); here it is called in the C
library. Elsewhere than on Linux the loop's own timer serves, at its own precision.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CLOCK_MONOTONIC = 1  # <time.h> of Linux
TFD_TIMER_ABSTIME = 1  # <sys/timerfd.h>
TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class PreciseTimer:
    """One alarm at a time; setting it again replaces it."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._descriptor = -1
        if sys.platform == "linux":
            self._library = ctypes.CDLL(None, use_errno=True)
            self._spec = _TimerSpec()
            self._descriptor = self._library.timerfd_create(CLOCK_MONOTONIC, TFD_FLAGS)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._fired)

    def set(self, when_ns: int) -> None:
        """Call once at `when_ns` of CLOCK_MONOTONIC; a time that has passed is at once."""
        if self._descriptor < 0:
            self.clear()
            delay_s = max(when_ns - time.monotonic_ns(), 0) / 1e9
            self._handle = self._loop.call_later(delay_s, self._call)
            return
        self._arm(*divmod(max(when_ns, 1), 1_000_000_000))

    def clear(self) -> None:
        """Forget the alarm."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._arm(0, 0)

    def close(self) -> None:
        """Forget the alarm and give the descriptor back; idempotent."""
        self.clear()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _arm(self, seconds: int, nanoseconds: int) -> None:
        value = self._spec.value
        value.seconds, value.nanoseconds = seconds, nanoseconds
        self._library.timerfd_settime(
            self._descriptor, TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None
        )

    def _fired(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return  # it was set again since it became readable
        self._call()
