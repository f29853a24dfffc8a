"""Backups of the stores of a cluster under load, restored as a cluster at other addresses."""

from __future__ import annotations

import os
from contextlib import ExitStack
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from kernel.cluster.records import Facts, NodeRecord, NodeState
from kernel.cluster.roster import Home, Restored, Roster
from kernel.rpc.handshake import VERSIONS, Hello
from tests.gateway.cluster import STORES, Cluster, until
from tests.gateway.test_backups import DURABLE, drained, told, weir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.gateway.serving import Process

ENOUGH = 200


class Load:
    """Publishes 0, 1, 2, ... to `work`, each once the one before it is confirmed."""

    def __init__(self, gateway: Process) -> None:
        self.confirmed = 0
        self._gateway = gateway
        self._over = Event()
        self._thread = Thread(target=self._publish, daemon=True)
        self._thread.start()

    def until(self, confirmed: int) -> None:
        until(lambda: self.confirmed >= confirmed, lambda: f"{self.confirmed} are confirmed")

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)

    def _publish(self) -> None:
        with self._gateway.amqp() as connection:
            channel = connection.channel()
            channel.queue_declare("work", durable=True)
            channel.confirm_delivery()
            while not self._over.is_set():
                channel.basic_publish("", "work", b"%d body" % self.confirmed, DURABLE)
                self.confirmed += 1


def cluster_of_three(
    folder: Path, stack: ExitStack, stores: Sequence[int] = STORES
) -> tuple[Cluster, Process]:
    """Three stores and a gateway; `stores`: all that there will be."""
    cluster = Cluster(folder, stack, ["node.cluster.replicas=3"], stores=stores)
    cluster.found()
    for number in STORES:
        cluster.start_store(number)
    gateway = cluster.start_gateway("g")
    for store in cluster.stores.values():
        store.serves()
    for number in STORES[1:]:
        cluster.join(number)
    return cluster, gateway.serves()


def backed_up(cluster: Cluster, gateway: Process, folder: Path) -> None:
    """One backup of each store, of one cut."""
    alone = weir("backup", "create", str(folder / "x"), "--data", str(cluster.stores[1].data))
    assert (alone.code != 0, "weir cluster cut" in alone.err) == (True, True), alone.err
    nowhere = weir("backup", "create", str(folder / "x"), "--data", str(gateway.data))
    assert (nowhere.code != 0, "at each store" in nowhere.err) == (True, True), nowhere.err
    cut = told(weir("cluster", "cut", "--data", str(cluster.stores[2].data), "-o", "json"))
    assert [each["number"] for each in cut["stores"]] == list(STORES)
    again = weir("cluster", "cut", "--data", str(cluster.stores[1].data))
    assert (again.code != 0, "one at a time" in again.err) == (True, True), again.err
    for number, store in cluster.stores.items():
        create = ("backup", "create", str(folder / str(number)), "--data", str(store.data))
        made = told(weir(*create, "--cut", cut["cut"], "-o", "json"))
        assert made["number"] == 1
        gone = weir(*create, "--incremental", "--cut", cut["cut"])
        assert (gone.code != 0, "nothing is pinned of cut" in gone.err) == (True, True)


def restored(folder: Path, backups: Path, stack: ExitStack) -> Cluster:
    """A cluster of them, at other addresses."""
    cluster = Cluster(folder, stack)
    words: list[str] = []
    for number in STORES:
        at = [w for n, (h, p) in cluster.addresses.items() for w in ("--at", f"{n}@{h}:{p}")]
        restore = ("backup", "restore", str(backups / str(number)), *at, "-o", "json")
        facts: Any = told(weir(*restore, "--data", str(folder / str(number)), *words))
        words = ["--timeline", facts["timeline"]]
    return cluster


def test_stores_cut_under_load_are_restored_as_a_cluster_elsewhere(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with ExitStack() as stack:
        cluster, gateway = cluster_of_three(tmp_path / "lost", stack)
        load = Load(gateway)
        load.until(ENOUGH)
        before = load.confirmed
        backed_up(cluster, gateway, backups)
        load.until(load.confirmed + ENOUGH)
        load.end()
    every = [str(backups / str(number)) for number in STORES]
    assert weir("backup", "verify", *every).code == 0
    twice = weir("backup", "verify", every[0], every[0])
    assert (twice.code, "of one store" in twice.out) == (3, True)
    wrong = ("--timeline", "two words", "--data", str(tmp_path / "wrong"))
    assert "letters and digits" in weir("backup", "restore", every[0], *wrong).err
    with ExitStack() as stack:
        cluster = restored(tmp_path / "anew", backups, stack)
        for number in STORES:
            cluster.start_store(number)
        gateway = cluster.start_gateway("g").serves()
        found = drained(gateway, "work")
        assert set(found) == set(range(len(found))), "one is missing in front of another"
        assert len(found) >= before, "confirmed before the cut, and lost"
        assert set(found.values()) == {1}
        where = {n: f"{host}:{port}" for n, (host, port) in cluster.addresses.items()}
        until(
            lambda: (
                {each["number"]: each["address"] for each in cluster.status()["nodes"]} == where
            ),
            "the register says where they are now",
        )


def test_who_was_not_restored_with_the_others_is_not_let_in() -> None:
    known = [
        NodeRecord(number, NodeState.MEMBER, Facts(f"id{number}", "h", number, f"l{number}"))
        for number in STORES
    ]
    then = [each.facts.store for each in known[:2]]
    was, now = ("h", 2), ("new", 2)
    restored = Restored("a word", then, {2: (was, now)})
    roster = Roster(Home("c", 1, known=known, restored=restored), "id1", {})

    def refusal(number: int, timeline: str) -> str | None:
        own = "c", number, f"id{number}", "store", "", b"n" * 16
        return roster.admit(Hello(VERSIONS, *own, timeline=timeline))

    assert refusal(2, "a word") is None
    for other in ("", "another"):
        assert "not restored with this one" in str(refusal(2, other))
    assert refusal(3, "") is None, "it has joined since"
    assert (roster.timeline, roster.home().restored) == ("a word", restored)
    assert roster.addresses() == {1: ("h", 1), 2: now, 3: ("h", 3)}
    moved = Facts("id2", "third", 2, "l2")
    roster.records[2] = NodeRecord(2, NodeState.MEMBER, moved)
    assert roster.addresses()[2] == ("third", 2), "the register knows better by now"


def test_a_majority_is_restored_and_empty_stores_make_it_a_cluster_of_another_number(
    tmp_path: Path,
) -> None:
    backups, anew = tmp_path / "backups", tmp_path / "anew"
    with ExitStack() as stack:
        cluster, gateway = cluster_of_three(tmp_path / "lost", stack)
        load = Load(gateway)
        load.until(ENOUGH)
        load.end()
        data = [word for each in cluster.stores.values() for word in ("--here", str(each.data))]
        backups.mkdir()
        (backups / "store-1").touch()
        failed = weir("backup", "cluster", str(backups), *data)
        assert (failed.code, "store-1" in failed.err) == (1, True), failed
        (backups / "store-1").unlink()
        without = ("--without", "3", "-o", "json")
        two = told(weir("backup", "cluster", str(tmp_path / "two"), *data, *without))
        assert [each["member"] for each in two["made"]] == ["store-1", "store-2"]
        assert two["not_cut"] == ["store-3"]
        pinned = [each.data / "pinned" for each in cluster.stores.values()]
        until(lambda: not any(map(os.listdir, pinned)), "what was to be copied is let go")
        made = told(weir("backup", "cluster", str(backups), *data, "-o", "json"))
        assert (len(made["made"]), made["left"]) == (3, [])
        none = weir("backup", "cluster", str(tmp_path / "none"), *data[-2:], *without)
        assert (none.code, "store-3: none of them is in the cut" in none.err) == (1, True), none
    with ExitStack() as stack:
        cluster = Cluster(anew, stack, stores=(1, 2, 4, 5))
        at = [w for n in (1, 2) for w in ("--at", f"{n}@127.0.0.1:{cluster.addresses[n][1]}")]
        word: list[str] = []
        for number in (1, 2):
            restore = ("backup", "restore", str(backups / f"store-{number}"), *at, "-o", "json")
            facts: Any = told(weir(*restore, "--data", str(anew / str(number)), *word))
            word = ["--timeline", facts["timeline"]]
        for number in (1, 2, 4, 5):
            cluster.start_store(number)
        gateway = cluster.start_gateway("g").serves()
        for store in cluster.stores.values():
            store.serves()
        replaced = cluster.stores[4].api(
            "POST", "/cluster/join", {"same_host": True, "replaces": 3}
        )
        assert replaced.status == 202, replaced.body
        until(
            lambda: (
                {each["number"]: each["state"] for each in cluster.status()["nodes"]}
                == {1: "member", 2: "member", 4: "member"}
            ),
            lambda: f"4 comes in the place of 3: {cluster.status()}",
        )
        cluster.join(5)
        assert sum(drained(gateway, "work").values()) == load.confirmed
