"""The disk under the brokers: what a bare fdatasync costs there, and who calls it how often."""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROBE_WRITES = 500
PROBE_BYTES = 4096
MEMORY_FILESYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
STRACE_LEAD_S = 1.0  # strace attaches to every thread of the server before the load starts


def fdatasync_us(folder: Path) -> float:
    """Median microseconds of a 4 KiB write and fdatasync in a fallocated file in `folder`."""
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, PROBE_WRITES * PROBE_BYTES)
        os.fsync(descriptor)
        block = b"\xa5" * PROBE_BYTES
        times = []
        for place in range(PROBE_WRITES):
            start = time.perf_counter()
            os.pwrite(descriptor, block, place * PROBE_BYTES)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def count_syncs(pids: list[int], load: Callable[[], int]) -> float | None:
    """Run `load`, which returns its messages; return syncs of `pids` per 1,000 of them.

    Counted by strace, which slows the server: use no other figure of that run. None without
    strace, when it may not attach, or when `load` failed (0 messages).
    """
    strace = shutil.which("strace")
    if strace is None:
        return None
    command = [strace, "-f", "-c", "-e", "trace=fdatasync,fsync,sync_file_range"]
    for pid in pids:
        command += ["-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(STRACE_LEAD_S)
        if tracer.poll() is not None:
            return None
        messages = load()
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        _, report = tracer.communicate(timeout=30)
    return parse_strace(report) * 1e3 / messages if messages else None


def parse_strace(report: str) -> int:
    """The calls in strace's summary table (its fourth column)."""
    rows = re.findall(
        r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(?:fdatasync|fsync|sync_file_range)\s*$",
        report,
        re.MULTILINE,
    )
    return sum(map(int, rows))
