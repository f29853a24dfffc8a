"""Features of the log, by processes as an operator has them (ADR 26)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pika

from kernel.common.feature_levels import FEATURES, LATEST
from tests.gateway.cluster import STORES, Cluster, until
from tests.gateway.serving import environment, launched, serving
from tests.kernel import store_fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.serving import Answer, Process

FIXTURE = Path(__file__).parent.parent / "fixtures" / "store-1.json.gz"
OLD = {"WEIR_TEST_UNDERSTANDS": "0"}
"""Of a process that takes itself for a build that understands no feature."""

OFF = f"off: {', '.join(each.name for each in FEATURES)} (`weir cluster features enable --all`)"


def health(node: Process) -> str:
    found = node.api("GET", "/health").json["checks"]
    return str(next(each["reason"] for each in found if each["name"] == "features"))


def listed(node: Process) -> Answer:
    return node.api("GET", "/cluster/features")


def waits(node: Process) -> str:
    """What a feature waits for, to be turned on or to be on everywhere."""
    answer = listed(node)
    return answer.json["features"][-1]["waits"] if answer.status == 200 else str(answer.body)


def refusal(node: Process) -> str:
    """Why a feature stays off."""
    asked = node.api("POST", "/cluster/features", {"name": "register"})
    assert asked.status != 200, asked.body
    return str(asked.json["error"]["message"])


def is_whole(cluster: Cluster) -> Callable[[], bool]:
    """Every store answers, and every group is led."""
    return lambda: (
        all(each["answers"] for each in cluster.status()["nodes"])
        and all(cluster.leaders().values())
    )


def turned_away(gateway: Process) -> str:
    """What a gateway that does not serve says."""
    gateway.read()
    return "".join(gateway.said)


def publish(gateway: Process, body: bytes) -> None:
    with gateway.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "kept", body, pika.BasicProperties(delivery_mode=2))


def consumed(gateway: Process, count: int) -> list[bytes]:
    with gateway.amqp() as connection:
        channel = connection.channel()
        got = [channel.basic_get("kept", auto_ack=True) for _ in range(count)]
        return [body for _, _, body in got]


def weir(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *words]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_an_old_directory_is_said_to_have_some_off_and_keeps_what_an_operator_turns_on(
    tmp_path: Path,
) -> None:
    data = tmp_path / "d"
    with launched(data, variables=OLD) as node:
        node.serves()
        assert node.terminate() == 0
    with launched(data) as node:
        node.serves()
        assert "register" in health(node)
        assert weir("cluster", "features", "enable", "--data", str(data)).returncode == 2
        wrong = weir("cluster", "features", "enable", "nothing", "--data", str(data))
        assert "there is no feature nothing" in wrong.stderr
        done = weir("cluster", "features", "enable", "--all", "--data", str(data))
        assert done.returncode == 0, done.stderr
        assert not health(node)
        assert node.terminate() == 0
    with launched(data) as node:
        node.serves()
        assert not health(node)
        listed = weir("cluster", "features", "ls", "-o", "json", "--data", str(data))
        assert listed.stdout.count("true") == LATEST
        assert node.terminate() == 0
    with launched(data, variables=OLD) as node:
        assert node.process.wait(30) == 1
        assert "start a newer one" in node.rest()


def test_a_directory_of_before_there_were_features_goes_on_with_none(tmp_path: Path) -> None:
    data = tmp_path / "d"
    disk, _, _ = store_fixture.read(FIXTURE, "clean")
    for directory in ("", "journal", "snap"):
        (data / directory).mkdir(mode=0o700, exist_ok=True)
        for name in disk.names(directory):
            (data / directory / name).write_bytes(disk.content(f"{directory}/{name}".lstrip("/")))
    with serving(data) as node:
        said = weir("health", "--data", str(data))
        assert said.returncode == 0, said.stdout
        assert "off: register" in said.stdout
        assert "weir cluster features enable --all" in said.stdout
        assert weir("cluster", "features", "enable", "--all", "--data", str(data)).returncode == 0
        assert "off: register" not in weir("health", "--data", str(data)).stdout
        node.kill()
    with serving(data) as node:
        assert not health(node)


def test_a_cluster_is_upgraded_process_by_process_and_then_features_are_turned_on(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.found()
        for number in STORES:
            cluster.start_store(number, variables=OLD).serves()
        until(lambda: set(cluster.leaders().values()) == {1}, "store 1 leads")
        for number in STORES[1:]:
            cluster.join(number)
        gateway = cluster.start_gateway("a", variables=OLD).serves()
        publish(gateway, b"of an old build")

        # Stores first, one after the other; nothing changes by itself.
        for number in STORES:
            assert cluster.stores[number].terminate() == 0
            cluster.start_store(number).serves()
            until(is_whole(cluster), lambda: str(cluster.status()))
        assert {health(each) for each in cluster.stores.values()} == {OFF}
        assert "gateway at" in refusal(cluster.stores[2])
        assert gateway.terminate() == 0
        gateway = cluster.start_gateway("a").serves()
        publish(gateway, b"of a new one")

        # Nobody knows what a store that is away understands.
        cluster.stores[3].kill()
        until(lambda: "store 3 does not answer" in refusal(gateway), lambda: refusal(gateway))
        assert health(cluster.stores[1]) == OFF
        cluster.start_store(3).serves()
        until(is_whole(cluster), lambda: str(cluster.status()))
        until(lambda: not waits(gateway), lambda: waits(gateway))
        last = FEATURES[-1].name
        done = weir("cluster", "features", "enable", last, "--data", str(gateway.data))
        assert done.returncode == 0, done.stderr
        until(lambda: not any(map(health, cluster.stores.values())), "every store knows")
        until(lambda: not waits(gateway), lambda: waits(gateway))

        # From now on an old build is not let in, whatever it is.
        old = cluster.start_gateway("b", variables=OLD)
        until(lambda: "start it with a newer Weir" in turned_away(old), lambda: turned_away(old))
        assert cluster.stores[3].terminate() == 0
        refused = cluster.start_store(3, variables=OLD)
        assert refused.process.wait(30) == 1
        assert "start a newer one" in refused.rest()

        # It stays on, and all that was there is still there.
        for number in STORES[:2]:
            cluster.stores[number].kill()
        for number in STORES:
            cluster.start_store(number)
        for store in cluster.stores.values():
            store.serves()
        until(is_whole(cluster), lambda: str(cluster.status()))
        until(lambda: not any(map(health, cluster.stores.values())), "it is still on")
        assert consumed(gateway, 2) == [b"of an old build", b"of a new one"]


def test_a_store_of_an_older_build_is_not_let_in(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.found()
        cluster.start_store(1)
        first = cluster.stores[1].serves()
        until(lambda: cluster.status()["nodes"], "the first store knows itself")
        assert not health(first)
        second = cluster.start_store(2, variables=OLD).serves()
        until(
            lambda: "start it with a newer Weir" in str(second.api("GET", "/health").json),
            lambda: str(second.api("GET", "/health").json),
        )
