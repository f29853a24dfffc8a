"""CPU and memory of a process and its children."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.load import procfs

BURN = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"


def test_a_childs_cpu_counts_while_it_runs_and_after_it_was_waited_for() -> None:
    before = procfs.cpu_s([os.getpid()])
    code = BURN + "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in procfs.descendants(os.getpid())
        running = procfs.cpu_s([os.getpid()])
        both = procfs.cpu_s([os.getpid(), child.pid])
    assert running - before >= 0.15
    assert both - running < 0.15
    assert procfs.cpu_s([os.getpid()]) - before >= 0.15


def test_own_cpu_grows_and_memory_is_there() -> None:
    before = procfs.cpu_s([os.getpid()])
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert procfs.cpu_s([os.getpid()]) - before >= 0.05
    assert procfs.resident_bytes([os.getpid()]) > 1 << 20


def test_a_process_that_does_not_exist_is_an_error_for_cpu_and_nothing_for_memory() -> None:
    gone = 4_194_305  # above the largest pid that Linux gives
    with pytest.raises(procfs.ProcessGone, match=str(gone)):
        procfs.cpu_s([gone])
    assert procfs.resident_bytes([gone]) == 0
