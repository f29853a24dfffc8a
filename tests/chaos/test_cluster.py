"""The short form of `make chaos`: a cluster of processes under a few faults, all protocols at once.

How long publishers pause is told by the long form alone: here other tests use the processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Outcome, report
from tests.chaos.clients.lanes import LANES
from tests.chaos.plan import Kind, Round
from tests.chaos.site import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ELECTION_TIMEOUT_MS = 1_500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, ELECTION_TIMEOUT_MS)
    yield made
    made.stop()


def verdict(cluster: Cluster, folder: Path, *rounds: Round) -> Outcome:
    campaign = Campaign(cluster, folder, list(LANES), ELECTION_TIMEOUT_MS, print)
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
