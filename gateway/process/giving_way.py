"""Has this process run when nobody else wants to: for work beside a server that may take longer.

Of the kernel's scheduling classes this is SCHED_IDLE: whoever else wakes up has the CPU at once,
where a nice process would keep it until its slice is over, and what the process reads and writes is
of the disk's idle class as well. Where all CPUs are busy the whole time it still gets a three
hundredth of one, so that what it does ends.
"""

from __future__ import annotations

import os

NICE = 19
"""Where there is no such class, or it is not allowed."""


def give_way() -> None:
    """For all that this process does from now on: without privileges there is no way back."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(NICE)
