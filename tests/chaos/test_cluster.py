"""The short form of `make chaos`: a cluster of processes under a few faults, all protocols at once.

How long publishers pause is told by the long form alone: here other tests use the processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Outcome, report
from tests.chaos.clients.lanes import USUAL
from tests.chaos.growing import Growing
from tests.chaos.plan import Kind, Round
from tests.chaos.site import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ELECTION_TIMEOUT_MS = 1_500

FEW = ("amqp", "groups", "plain")
"""Lanes of which each may be resized, one a protocol."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, ELECTION_TIMEOUT_MS)
    yield made
    made.stop()


class FewGroups(Growing):
    """Five stores with as few groups and spare stores as there is something to see of."""

    data_groups = 2
    groups_in_all = 4
    names = tuple(f"store{number}" for number in range(1, 7))
    calm_seconds = 2.5

    def uneven(self, _say: object) -> str:
        """So few groups are in no way even."""
        return ""


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[FewGroups]:
    made = FewGroups(tmp_path, ELECTION_TIMEOUT_MS, FEW)
    yield made
    made.stop()


def verdict(
    cluster: Cluster, folder: Path, *rounds: Round, lanes: Sequence[str] = USUAL
) -> Outcome:
    campaign = Campaign(cluster, folder, lanes, ELECTION_TIMEOUT_MS, print)
    outcome = campaign.run(rounds, quiet_seconds=0)
    report(outcome, "pytest tests/chaos/test_cluster.py", print)
    return outcome


def test_nothing_is_lost_undone_or_out_of_order_when_processes_die_or_are_cut_off(
    cluster: Cluster, tmp_path: Path
) -> None:
    outcome = verdict(
        cluster,
        tmp_path,
        Round(0, Kind.KILL_LEADER, 1, 0, 1, 0.5),
        Round(1, Kind.CUT_STORES, 2, 0, 3, 0.5),
    )
    assert outcome.missing == {}
    assert outcome.violations == []


def test_a_rolling_restart_costs_no_publish_more_than_a_retry(
    cluster: Cluster, tmp_path: Path
) -> None:
    outcome = verdict(cluster, tmp_path, Round(0, Kind.ROLLING_RESTART, 1, 0, 0, 0.5))
    assert outcome.missing == {}
    assert outcome.violations == []


def test_nothing_is_lost_or_out_of_order_while_stores_join_topics_grow_and_what_is_hot_moves(
    growing: FewGroups, tmp_path: Path
) -> None:
    outcome = verdict(
        growing,
        tmp_path,
        Round(0, Kind.ADD_STORE, 1, 0, 1, 0),
        Round(1, Kind.RESIZE, 1, 0, 1, 0, Kind.KILL_LEADER),
        Round(2, Kind.MOVE_HOT, 1, 0, 1, 0),
        lanes=FEW,
    )
    assert outcome.missing == {}
    assert outcome.violations == []
