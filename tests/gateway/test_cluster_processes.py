"""Stores as processes of their own: begun, joined, killed, handed over."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gateway.config.loading import load
from gateway.process.running import StartRefused
from gateway.serving.store_node import claim, found_cluster, place
from kernel.cluster.records import NodeState
from kernel.store.drivers.disk import DirectoryDisk
from tests.gateway import monitoring
from tests.gateway.cluster import SECONDS, SECRET, STORES, Cluster, until
from tests.gateway.serving import environment
from tests.kernel.remote.gateway import Gateway

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.gateway.cluster import Running


def ran(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=environment(WEIR_CLUSTER_SECRET=SECRET),
    )
    return done.returncode, done.stdout, done.stderr


def test_every_metric_of_clusters_that_a_rule_or_a_panel_asks_for_is_in_a_scrape(
    running: Running,
) -> None:
    found, gateways = running
    there = [
        monitoring.scraped(each.http("GET", "/metrics").body.decode())
        for each in (found.stores[1], gateways[0])
    ]
    assert monitoring.OF_CLUSTERS - set.union(*there) == set()
    assert len(monitoring.OF_CLUSTERS) > 4, "they were found"


def test_three_stores_have_joined_and_go_on_without_one_that_is_killed(running: Running) -> None:
    found, _ = running
    data = str(found.stores[2].data)
    code, out, problem = ran("cluster", "status", "--data", data, "-o", "json")
    assert code == 0, problem
    status = json.loads(out)
    assert [each["number"] for each in status["nodes"]] == list(STORES)
    assert all(each["state"] == "member" and each["answers"] for each in status["nodes"])
    assert all(len(each["replicas"]) == len(STORES) for each in status["groups"])
    assert sorted(found.leaders().values()) == list(STORES)

    found.stores[1].kill()
    until(lambda: set(found.leaders().values()) == {2, 3}, "others lead what store 1 led")
    (dead,) = [each for each in found.status()["nodes"] if not each["answers"]]
    assert (dead["number"], bool(dead["error"])) == (1, True)
    found.start_store(1)
    found.stores[1].serves()
    until(lambda: all(each["answers"] for each in found.status()["nodes"]), "all answer")


def test_a_store_that_is_told_to_end_has_others_lead_first(running: Running) -> None:
    found, _ = running
    assert found.stores[2].terminate() == 0
    said = found.stores[2].rest()
    assert '"event": "stopped"' in said
    assert "leaderships kept" not in said
    for event in ("leader", "serves the group"):
        assert f'"event": "{event}"' in said
    until(lambda: not {0, 2} & set(found.leaders().values()), "others lead what store 2 led")
    found.start_store(2)
    found.stores[2].serves()
    until(lambda: all(each["answers"] for each in found.status()["nodes"]), "all answer")


def test_a_store_says_in_its_log_whom_it_has_turned_away_and_why(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = Cluster(tmp_path, stack)
    cluster.found()
    cluster.start_store(1)
    cluster.stores[1].serves()

    async def knock(secret: bytes) -> None:
        gateway = Gateway({1: cluster.addresses[1]}, secret=secret)
        gateway.remote.start()
        async with asyncio.timeout(SECONDS):
            while not gateway.remote.last_error(1):
                await asyncio.sleep(0.01)
        await gateway.remote.stop()

    for secret in (b"guessed", SECRET.encode(), b"guessed"):
        asyncio.run(knock(secret))
    assert cluster.stores[1].terminate() == 0
    lines = [
        json.loads(each) for each in cluster.stores[1].rest().splitlines() if '"event"' in each
    ]
    told = [each for each in lines if each["event"] == "a process was turned away"]
    assert {each["peer"].rpartition(":")[0] for each in told} == {"127.0.0.1"}
    assert [each["reason"] for each in told] == [
        "the cluster's secret is not the same here and there",
        "this is cluster 'weir', not 'test'",
    ]


def test_a_data_directory_is_of_one_store_of_one_cluster(tmp_path: Path, stack: ExitStack) -> None:
    cluster = Cluster(tmp_path, stack)
    data = str(tmp_path / "1")
    code, out, problem = ran("cluster", "init", "--data", data, *cluster.flags(1), "-o", "json")
    assert code == 0, problem
    assert json.loads(out)["store"] == 1
    with pytest.raises(StartRefused, match="is that of store 1 of cluster"):
        found_cluster(tmp_path / "1", cluster.settings(1))
    with pytest.raises(StartRefused, match="number is 2"):
        claim(DirectoryDisk(tmp_path / "1"), cluster.settings(2))
    told = ["node.role=store", "node.cluster.number=2"]
    alone = load(None, told, environ={}).settings
    with pytest.raises(StartRefused, match="is new and knows no other"):
        claim(DirectoryDisk(tmp_path / "2"), alone)
    code, _, problem = ran("serve", "--data", data)
    assert code == 1
    assert "serve it by `weir store`" in problem
    assert "Traceback" not in problem


def test_a_store_that_was_removed_says_so_also_when_it_starts_again(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = Cluster(tmp_path, stack)
    cluster.found()
    for number in (1, 2):
        cluster.start_store(number)
        cluster.stores[number].serves()
    cluster.join(2)

    def reasons() -> dict[str, str]:
        checks = cluster.stores[2].api("GET", "/health").json["checks"]
        return {each["name"]: each["reason"] for each in checks if not each["ok"]}

    assert reasons() == {}
    assert cluster.stores[1].api("DELETE", "/cluster/stores/2").status == 202
    until(lambda: [each["number"] for each in cluster.status()["nodes"]] == [1], "it has left")
    until(lambda: "it has left" in reasons().get("cluster", ""), "and knows it")
    cluster.stores[2].kill()
    cluster.start_store(2)
    cluster.stores[2].serves()
    assert "it has left" in reasons()["cluster"]


@pytest.mark.parametrize(("leads", "others_lead"), [(0, False), (1, True)])
def test_a_store_that_was_away_when_its_place_was_taken_hears_that_others_lead(
    leads: int, others_lead: bool
) -> None:
    found = place(
        SimpleNamespace(
            store=SimpleNamespace(groups=(0, 1), holds=lambda _: True, standing=lambda _: (1, 0))
        ),
        SimpleNamespace(refused="", errors=dict),
        SimpleNamespace(
            nodes=(1, 2),
            last_error={1: "", 2: "gone"}.__getitem__,
            table=SimpleNamespace(of=lambda _: leads),
        ),
        SimpleNamespace(own=SimpleNamespace(state=NodeState.MEMBER)),
    )
    assert not found.ok
    assert found.reason.startswith("no leader is known of group 0, 1 (store 2: gone)")
    assert ("others lead without this store" in found.reason) is others_lead
