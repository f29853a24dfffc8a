"""Features of the log, by processes as an operator has them (ADR 26)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from kernel.common.feature_levels import LATEST
from tests.gateway.cluster import SECRET, Cluster, until
from tests.gateway.serving import environment, launched

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process


def health(node: Process) -> str:
    found = node.api("GET", "/health").json["checks"]
    return next(each["reason"] for each in found if each["name"] == "features")


def weir(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *words]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_an_old_directory_is_said_to_have_some_off_and_keeps_what_an_operator_turns_on(
    tmp_path: Path,
) -> None:
    data = tmp_path / "d"
    with launched(data, WEIR_TEST_UNDERSTANDS="0") as node:
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
    with launched(data, WEIR_TEST_UNDERSTANDS="0") as node:
        assert node.process.wait(30) == 1
        assert "start a newer one" in node.rest()


def test_a_store_of_an_older_build_is_not_let_in(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.found()
        cluster.start_store(1)
        first = cluster.stores[1].serves()
        until(lambda: cluster.status()["nodes"], "the first store knows itself")
        assert not health(first)
        settings = cluster._store_settings(2)
        second = stack.enter_context(
            launched(
                tmp_path / "2",
                *settings,
                role="store",
                WEIR_CLUSTER_SECRET=SECRET,
                WEIR_TEST_UNDERSTANDS="0",
            )
        ).serves()
        until(
            lambda: "start it with a newer Weir" in str(second.api("GET", "/health").json),
            lambda: str(second.api("GET", "/health").json),
        )
