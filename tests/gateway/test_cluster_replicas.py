"""Stores as processes of their own, more of them than each group has replicas."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

from gateway.commands.admin import cluster as cluster_commands
from gateway.commands.admin.cluster import _received
from gateway.commands.common.output import CommandError
from tests.gateway.cluster import GROUPS, Cluster, until
from tests.gateway.test_cluster_processes import ran

if TYPE_CHECKING:
    from pathlib import Path

STORES = (1, 2, 3, 4)
REPLICAS = 3


def held(status: Any) -> Counter[int]:
    """Replicas of data groups by store."""
    return Counter(
        replica["node"]
        for each in status["groups"]
        for replica in each["replicas"]
        if each["group"] and replica["voter"]
    )


def copies_go_as_fast_as_is_said(cluster: Cluster) -> None:
    """How fast is set and taken back while the cluster runs, and it is told what says so."""
    data = ("--data", str(cluster.stores[4].data))

    def told(*words: str) -> str:
        code, _, problem = ran("cluster", "replicas", *words, *data)
        assert code == 0, problem
        return problem

    assert cluster.status()["copy_rate"] is None
    assert "copies take 20 MB a second of each store, as was set" in told("--rate", "20")
    assert (cluster.status()["copy_rate"], cluster.status()["replicas"]) == (20e6, REPLICAS)
    assert "copies take 20 MB a second of each store, as was set" in told()
    by_settings = "copies take all they can get of each store, by its settings"
    assert by_settings in told("--rate", "default")
    assert by_settings in told()
    assert cluster.status()["copy_rate"] is None
    assert {each["copy_setting"] for each in cluster.status()["nodes"]} == {0}
    code, _, problem = ran("cluster", "replicas", "--rate", "fast", *data)
    assert (code != 0, "is no number of MB" in problem) == (True, True), problem
    assert cluster.stores[1].api("PUT", "/cluster/replicas", {}).status == 400
    refused = cluster.stores[1].api("PUT", "/cluster/replicas", {"copy_rate": 10})
    assert (refused.status, b"1000000 to" in refused.body) == (400, True)


def test_four_stores_hold_three_replicas_of_each_group_and_one_that_leaves_gives_its_away(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, [f"node.cluster.replicas={REPLICAS}"], stores=STORES)
        cluster.found()
        for number in STORES:
            cluster.start_store(number)
        for store in cluster.stores.values():
            store.serves()
        until(lambda: cluster.status()["replicas"] == REPLICAS, "the number is set")
        for number in STORES[1:]:
            cluster.join(number)
        joined = str(cluster.stores[4].data)
        code, _, problem = ran("cluster", "join", "--same-host", "--data", joined)
        assert (code, "its replicas come behind that" in problem) == (0, True), problem

        def is_whole() -> bool:
            """Each data group has three replicas, and no store has none or all."""
            status = cluster.status()
            moves = [each["moving"] or each["short"] for each in status["groups"]]
            found = held(status)
            return (
                not any(moves)
                and sum(found.values()) == REPLICAS * (GROUPS - 1)
                and len(found) == len(STORES)
            )

        until(is_whole, lambda: f"all have a share: {cluster.status()}")
        code, out, problem = ran("cluster", "replicas", "--data", str(cluster.stores[4].data))
        assert (code, f"in {REPLICAS} stores" in problem) == (0, True), problem
        assert all(str(group) in out for group in range(GROUPS))
        code, _, problem = ran("cluster", "replicas", "2", "--data", str(cluster.stores[4].data))
        assert (code != 0, "odd number" in problem) == (True, True)
        copies_go_as_fast_as_is_said(cluster)

        code, out, problem = ran(
            "cluster", "groups", "add", "1", "--data", str(cluster.stores[4].data)
        )
        assert (code, "65" in out) == (0, True), problem
        assert cluster.status()["added"] == [{"group": 65, "waits": ""}]
        held_by_all = REPLICAS * GROUPS
        until(lambda: sum(held(cluster.status()).values()) == held_by_all, "it has its replicas")
        scraped = cluster.stores[4].http("GET", "/metrics").body.decode().splitlines()
        (received,) = [
            float(line.split()[1])
            for line in scraped
            if line.startswith("weir_cluster_snapshot_received_bytes_total ")
        ]
        assert received > 0, "a store that joins begins with snapshots of others"

        leaver = max(held(cluster.status()))
        assert cluster.stores[1].api("DELETE", f"/cluster/stores/{leaver}").status == 202
        until(
            lambda: leaver not in [each["number"] for each in cluster.status()["nodes"]],
            lambda: f"it leaves: {cluster.status()}",
        )
        found = held(cluster.status())
        assert (sum(found.values()), found[leaver]) == (held_by_all, 0)


def test_a_join_that_hears_nothing_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store that joins knows no register as long as something is in its way."""

    class Silent:
        def get(self, _path: str) -> Any:
            return {"nodes": []}

    monkeypatch.setattr(cluster_commands, "SILENT_MS", 0)
    with pytest.raises(CommandError, match="store 5 is not done within 0 s"):
        cluster_commands._await(cast("Any", Silent()), 5, "member", 0)
    assert "`weir cluster status` at another store" in capsys.readouterr().err


def test_replicas_are_kept_in_as_many_zones_as_there_are(tmp_path: Path) -> None:
    """Without zones the fourth store would have its share of replicas, and not one of each."""
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, [f"node.cluster.replicas={REPLICAS}"], stores=STORES)
        cluster.found()
        for number in STORES:
            zone = "west" if number == STORES[-1] else "east"
            cluster.start_store(number, f"node.cluster.zone={zone}")
        for store in cluster.stores.values():
            store.serves()
        until(lambda: cluster.status()["replicas"] == REPLICAS, "the number is set")
        for number in STORES[1:]:
            cluster.join(number)

        def told() -> dict[int, str]:
            return {each["number"]: each["zone"] for each in cluster.status()["nodes"]}

        # The first one wrote itself down before it was told: it says so when it starts.
        until(lambda: told() == {1: "east", 2: "east", 3: "east", 4: "west"}, lambda: str(told()))
        until(
            lambda: held(cluster.status())[4] == GROUPS - 1,
            lambda: f"each group has a replica in the west: {cluster.status()}",
        )
        code, out, _ = ran("cluster", "status", "--data", str(cluster.stores[1].data))
        assert (code, "west" in out) == (0, True)
        cluster.stores[3].kill()
        cluster.start_store(3, "node.cluster.zone=west").serves()
        until(lambda: told()[3] == "west", lambda: str(told()))


def test_a_snapshot_on_its_way_is_told_by_its_file_then_by_its_entries() -> None:
    told = {
        "sender": 1, "waits": False, "file_bytes": 10, "file_bytes_total": 20, "entries": 0,
        "entries_total": 0, "bytes": 10, "rate": 5, "seconds": 2,
    }  # fmt: skip
    figures = "(10 bytes, 5 a second, for 2 s)"
    assert _received("3", told) == f"store 3 from 1: 10 of 20 bytes of the file {figures}"
    told |= {"entries": 4, "entries_total": 9}
    assert _received("3", told) == f"store 3 from 1: 4 of 9 entries {figures}"
    told |= {"rate_max": 50}
    assert "(10 bytes, 5 of 50 a second, for 2 s)" in _received("3", told)
    assert _received("3", told | {"waits": True}) == "store 3 waits for its turn"
