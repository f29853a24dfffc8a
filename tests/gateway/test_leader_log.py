"""A store says in its log who leads, for how long nobody did, and from when on it serves."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.testing import capture_logs

from adapters.line_budget import PERIOD_MS
from gateway.reporting.leader_log import LINES_MAX, LeaderLog
from kernel.common.ids import RaftGroup


class Store:
    """A clock, and what a store knows, both set by hand."""

    def __init__(self, groups: int = 1) -> None:
        self.now_ms = 0
        self.groups = [RaftGroup(number) for number in range(groups)]
        self.term = 1
        self.leader = 0
        self.serves = False

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def standing(self, _group: RaftGroup) -> tuple[int, int]:
        return self.term, self.leader

    def serving(self, _group: RaftGroup) -> object | None:
        return self if self.serves else None


def told(lines: list[Any]) -> list[dict[str, Any]]:
    left_out = ("log_level", "unlogged", "group")
    return [{name: each[name] for name in each if name not in left_out} for each in lines]


def test_a_failover_can_be_read_from_the_lines_of_one_store() -> None:
    store = Store()
    with capture_logs() as lines:
        leaders = LeaderLog(structlog.get_logger(), store, store)
        leaders.look()
        store.term, store.leader = 2, 3
        leaders.look()
        leaders.look()
        store.now_ms, store.leader = 5_000, 0
        leaders.look()
        store.now_ms, store.term, store.leader = 6_700, 3, 1
        leaders.look()
        store.now_ms, store.serves = 6_900, True
        leaders.look()
        store.now_ms, store.serves, store.term, store.leader = 9_000, False, 4, 2
        leaders.look()
    assert told(lines) == [
        {"event": "leader", "term": 2, "store": 3, "without_ms": 0},
        {"event": "no leader", "term": 2},
        {"event": "leader", "term": 3, "store": 1, "without_ms": 1_700},
        {"event": "serves the group", "term": 3, "after_ms": 200},
        {"event": "leader", "term": 4, "store": 2, "without_ms": 0},
    ]


def test_a_cluster_that_flaps_has_so_many_lines_a_minute_and_the_rest_is_counted() -> None:
    store = Store(groups=2)
    with capture_logs() as lines:
        leaders = LeaderLog(structlog.get_logger(), store, store)
        for store.term in range(2, LINES_MAX):
            store.leader = store.term % 3 + 1
            leaders.look()
        assert len(lines) == LINES_MAX
        store.now_ms, store.leader = PERIOD_MS, 0
        leaders.look()
    assert [each["unlogged"] for each in lines[-2:]] == [LINES_MAX - 4, 0]
