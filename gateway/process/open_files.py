"""How many files, and so connections, the process may have open.

Every connection is an open file. Shells and service managers commonly give a process a soft limit
of 1,024 beside a hard limit of many thousands: the soft one is for programs that use `select`,
which cannot count further. `weir serve` raises it to the hard limit, which is the operator's to set
(`ulimit -Hn`, `LimitNOFILE=`).
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

OPEN_FILES_MAX: Final = 1 << 20
"""More is not asked for, whatever the hard limit: far above what one process serves, and some
libraries walk through every number that they may have."""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The soft limit before and now."""

    before: int
    now: int


def allow_open_files() -> OpenFiles:
    """Raise the soft limit to the hard one, at most to OPEN_FILES_MAX; it is never lowered. Where
    the system refuses, it stays as it was.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if before == resource.RLIM_INFINITY or before >= wanted:
        return OpenFiles(before, before)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return OpenFiles(before, before)
    return OpenFiles(before, wanted)
