"""Alarms are lines of the log: one when they come, one when they go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from structlog.testing import capture_logs

from adapters.memory import GatewayMemory, Share
from gateway.admin.health import Check, memory_check
from gateway.admin.metrics.store_metrics import disk_check
from gateway.serving.alarm_log import AlarmLog
from kernel.store.drivers.system import SystemClock
from kernel.store.space.disk_watch import DiskSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict

MARK = 100


def space(free: int) -> DiskSpace:
    return DiskSpace(free, 1_000, MARK)


def lines(rounds: Sequence[Sequence[Check]]) -> list[EventDict]:
    """What is written if the checks are so, one after the other."""
    now: list[Sequence[Check]] = []
    loop: Any = asyncio.new_event_loop()
    try:
        with capture_logs() as logs:
            alarms = AlarmLog(structlog.get_logger("test"), loop, lambda: now[0])
            for checks in rounds:
                now[:] = [checks]
                alarms.look()
                alarms.look()
        return logs
    finally:
        loop.close()


def test_a_disk_that_fills_and_empties_writes_a_line_for_each_change() -> None:
    written = lines(
        [
            [disk_check(space(900), accepting=True)],
            [disk_check(space(150), accepting=True)],
            [disk_check(space(140), accepting=True)],
            [disk_check(space(50), accepting=False)],
            [disk_check(space(150), accepting=True)],
            [disk_check(space(900), accepting=True)],
        ]
    )
    assert [(each["event"], each.get("refuses")) for each in written] == [
        ("alarm", False),
        ("alarm", True),
        ("alarm", False),
        ("alarm over", None),
    ]
    assert {each["check"] for each in written} == {"disk"}
    assert "refused" in written[1]["reason"]


def test_figures_in_a_reason_that_change_are_no_further_line() -> None:
    memory = [[Check("memory", True, f"{share} % are used")] for share in (80, 81, 82)]
    assert [each["reason"] for each in lines(memory)] == ["80 % are used"]


def test_a_process_that_starts_or_stops_has_its_own_lines() -> None:
    assert lines([[Check("serving", False, "the node is starting or stopping")]]) == []


def test_clients_that_fill_the_memory_are_an_alarm_before_any_is_dropped() -> None:
    memory = GatewayMemory(SystemClock(), 1_000, 2_000)
    share = Share("198.51.100.1", lambda: None, None)
    assert not memory_check(memory).reason
    memory.input.hold(share, 800)
    found = memory_check(memory)
    assert (found.ok, "unfinished input takes more than 75%" in found.reason) == (True, True)
    memory.input.hold(share, 0)
    assert not memory_check(memory).reason
    assert not memory_check(None).reason
