"""CPU time and memory of processes and their descendants, from Linux's /proc.

The kernel counts CPU in clock ticks (10 ms): fine for a run of seconds, useless for one
message. A descendant that ended counts through its parent's "children" fields once it is
waited for.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DESCENDANTS_MAX = 10_000  # a loop in a racing /proc must end


class ProcessGone(Exception):
    """A process that was to be measured does not exist."""


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, which may itself hold blanks and ')'."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def descendants(pid: int) -> list[int]:
    """`pid` and all its living descendants."""
    found = [pid]
    for current in found:
        if len(found) > DESCENDANTS_MAX:
            break
        try:
            tasks = list((PROC / str(current) / "task").iterdir())
            for task in tasks:
                found.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue  # it ended between the listing and the look
    return found


def _family(pids: list[int]) -> set[int]:
    """`pids` and their descendants, each once even when one of `pids` is another's child."""
    return {pid for root in pids for pid in descendants(root)}


def cpu_s(pids: list[int]) -> float:
    """CPU seconds used so far by `pids` and all their descendants.

    Raises ProcessGone when one of `pids` itself does not exist.
    """
    ticks = 0
    for pid in _family(pids):
        try:
            fields = _stat_fields(pid)
        except OSError:
            if pid in pids:
                raise ProcessGone(f"process {pid} does not exist") from None
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_S


def busy_s() -> float:
    """CPU seconds that all processors have spent on anything but idling or awaiting a disk."""
    with (PROC / "stat").open() as file:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(
            int, file.readline().split()[1:9]
        )
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of `pids` and all their descendants; 0 for those that are gone."""
    pages = 0
    for pid in _family(pids):
        try:
            pages += int((PROC / str(pid) / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
