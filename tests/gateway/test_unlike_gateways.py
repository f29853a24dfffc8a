"""Gateways of one cluster whose `tenants` are not the same, as processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.gateway.cluster import Cluster, until
from tests.gateway.serving import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process


def tenants_check(gateway: Process) -> dict[str, Any]:
    checks = gateway.api("GET", "/health").json["checks"]
    (found,) = [each for each in checks if each["name"] == "tenants"]
    return dict(found)


def unlike(gateway: Process) -> float:
    lines = gateway.http("GET", "/metrics").body.decode().splitlines()
    (found,) = [line for line in lines if line.startswith("weir_gateway_tenants_unlike ")]
    return float(found.split()[1])


def ran(gateway: Process, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *words, "--data", str(gateway.data)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment())


def test_gateways_whose_tenants_differ_say_so_and_serve_all_the_same(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.found()
        cluster.start_store(1)
        acme = tmp_path / "weir.yaml"
        acme.write_text("tenants: {acme: {}}\n")
        first = cluster.start_gateway("a", config=acme).serves()
        second = cluster.start_gateway("b").serves()
        until(lambda: unlike(first) == unlike(second) == 1, "both know of the other's tenants")
        check = tenants_check(first)
        assert check["ok"]
        assert check["reason"].startswith("the settings tenants or limits are others at gateway-")
        assert first.http("GET", "/readyz", token=None).status == 200
        shown = first.api("GET", "/cluster/gateways").json["gateways"]
        assert [each["unlike"] for each in shown] == [[shown[1]["name"]], [shown[0]["name"]]]
        for words in (("node", "ls"), ("cluster", "status")):
            told = ran(second, *words)
            assert "the settings tenants or limits are not the same at gateway-" in told.stderr, (
                told
            )
        assert "unlike gateway-" in ran(second, "node", "ls").stdout

        second.terminate()
        assert "other gateways have other tenants or limits" in second.rest()
        second = cluster.start_gateway("b", config=acme).serves()
        until(lambda: unlike(first) == unlike(second) == 0, "both have the same tenants")
        assert tenants_check(first)["reason"] == ""
        assert "tenants" not in ran(first, "cluster", "status").stderr
