"""Health, metrics, and who may reach the admin side."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request

from auth.errors import AuthCode, AuthError
from auth.private_files.sealed import KeyRing
from gateway.admin.health import HealthRoutes, keys_check, metering_check, serving_check
from gateway.admin.http.callers import OPERATOR, set_caller
from gateway.admin.http.errors import STATUS
from gateway.admin.metrics.store_metrics import disk_check
from gateway.process import slices
from kernel.common.errors import Code
from kernel.store.space.disk_watch import DiskSpace
from tests.gateway.serving import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Scope


def basic(login: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode()}


def test_health_and_metrics_are_open_on_loopback(node: Process) -> None:
    for path in ("/livez", "/readyz"):
        found = node.http("GET", path, token=None)
        assert (found.status, found.body) == (200, b"ok\n")
    found = node.http("GET", "/metrics", token=None)
    assert found.status == 200
    assert b"weir_build_info 1.0" in found.body
    assert b"weir_store_commits_total" in found.body
    assert b"weir_store_disk_alarm 0.0" in found.body
    assert b"weir_store_damaged_groups 0.0" in found.body
    assert b"weir_store_clock_gap_seconds " in found.body
    for name in ("store_withdrawn", "unused_groups_let_go", "half_messages_discarded"):
        assert f"weir_{name}_total 0.0".encode() in found.body


def test_health_names_its_checks(node: Process) -> None:
    found = node.api("GET", "/health")
    assert found.status == 200
    assert found.json["status"] == "ok"
    assert {check["name"]: check["ok"] for check in found.json["checks"]} == {
        "serving": True,
        "disk": True,
        "damage": True,
        "features": True,
        "memory": True,
        "keys": True,
        "certificate": True,
        "metering": True,
    }


@pytest.mark.parametrize("host", ["rebound.example", "rebound.example:15673", "localhost.evil", ""])
def test_a_foreign_host_header_is_refused(node: Process, host: str) -> None:
    for path in ("/livez", "/metrics", "/api/v1/topics"):
        found = node.http("GET", path, headers={"Host": host})
        assert (found.status, found.json["error"]["code"]) == (400, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:15673", "[::1]:15673"])
def test_addresses_and_localhost_are_ours(node: Process, host: str) -> None:
    assert node.http("GET", "/livez", headers={"Host": host}).status == 200


@pytest.mark.parametrize("token", [None, "wrong"])
def test_the_api_asks_for_the_token(node: Process, token: str | None) -> None:
    for path in ("/api/v1/health", "/api/v1/topics", "/api/v1/nowhere", "/nowhere"):
        found = node.http("GET", path, token=token)
        assert (found.status, found.json["error"]["code"]) == (401, "bad_credentials")


def test_an_administrator_may_log_in_and_others_may_not(node: Process) -> None:
    for name, policies in (("root", ["administrator"]), ("worker", ["full"])):
        body = {"name": name, "password": "long: enough", "policies": policies}
        assert node.api("POST", "/users", body).status == 201
    headers = basic("root", "long: enough")
    assert node.http("GET", "/api/v1/users", token=None, headers=headers).status == 200
    for headers, status in (
        (basic("root", "other"), 401),
        (basic("worker", "long: enough"), 403),
        (basic("guest", "guest"), 403),
        ({"Authorization": "Basic %%%"}, 401),
        ({"Authorization": "Negotiate x"}, 401),
    ):
        assert node.http("GET", "/api/v1/users", token=None, headers=headers).status == status


def test_paths_and_methods_that_are_not_there(node: Process) -> None:
    found = node.api("GET", "/nowhere")
    assert (found.status, found.json["error"]["code"]) == (404, "no_such_path")
    found = node.api("DELETE", "/health")
    assert (found.status, found.json["error"]["code"]) == (405, "method_not_allowed")


def test_a_key_file_that_is_not_that_of_the_other_gateways_is_said() -> None:
    """Clients with access keys hear of an internal failure; who operates the gateway hears why."""
    ours, others = KeyRing({1: bytes(32)}), KeyRing({2: bytes(range(32))})
    assert (keys_check(None).reason, keys_check(ours).reason) == ("", "")
    with pytest.raises(AuthError):
        ours.unseal(others.seal(b"secret", b"key"), b"key")
    found = keys_check(ours)
    assert (found.ok, "copy the key file" in found.reason) == (True, True), "others are served"


def test_every_error_of_kernel_and_auth_has_a_status() -> None:
    assert set(STATUS) == {*Code, *AuthCode}
    for code, status in STATUS.items():
        caller = code.caller_fault if isinstance(code, AuthCode) else code.fault.value == "caller"
        assert (400 <= status < 500) == caller, code


def checks_of(is_ready: bool, accepting: bool, free_bytes: int) -> HealthRoutes:
    space = DiskSpace(free_bytes, total_bytes=1_000, mark_bytes=100)
    checks = [
        serving_check(ready=is_ready),
        disk_check(space, accepting=accepting),
        metering_check(None),
    ]
    return HealthRoutes(lambda: checks, CollectorRegistry())


async def test_a_node_that_is_stopping_or_full_is_not_ready() -> None:
    for is_ready, accepting, reason in (
        (False, True, "starting or stopping"),
        (True, False, "new messages are refused"),
    ):
        routes = checks_of(is_ready, accepting, free_bytes=50)
        request = Request({"type": "http"})
        answer = await routes.ready(request)
        assert answer.status_code == 503
        assert reason in bytes(answer.body).decode()
        assert (await routes.health(request)).status_code == 503
        assert (await routes.live(request)).status_code == 200


@pytest.mark.parametrize(("free_bytes", "reason"), [(200, ""), (199, "twice the mark")])
async def test_little_room_is_an_alarm_and_the_node_goes_on(free_bytes: int, reason: str) -> None:
    routes = checks_of(is_ready=True, accepting=True, free_bytes=free_bytes)
    request = Request({"type": "http"})
    answer = await routes.ready(request)
    assert answer.status_code == 200
    body = json.loads(bytes((await routes.health(request)).body))
    (disk,) = [check for check in body["checks"] if check["name"] == "disk"]
    assert disk["ok"]
    assert reason in disk["reason"]
    assert bool(disk["reason"]) == bool(reason)


class Many(Collector):
    """Metrics that take a moment each."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for number in range(50):
            yield GaugeMetricFamily(f"many_{number}", "One of many.", value=number)


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
async def test_the_event_loop_has_its_turn_while_the_process_tells_its_own_metrics(
    monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    monkeypatch.setattr(slices, "SHARE", 0)
    routes = HealthRoutes(list, Many())
    scope: Scope = {"type": "http", "headers": [(b"accept", accept.encode())]}
    set_caller(scope, OPERATOR)
    response = await routes.metrics(Request(scope))
    turns = 0
    parts, seen = bytearray(), list[int]()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send(message: Message) -> None:
        parts.extend(message.get("body", b""))
        seen.append(turns)

    counting = asyncio.create_task(count())
    await response({"type": "http"}, None, send)  # type: ignore[arg-type]  # nothing is received
    counting.cancel()
    assert seen[-1] - seen[1] >= 49
    text = parts.decode()
    assert [f"many_{number} {number}.0\n" in text for number in range(50)] == [True] * 50
    assert text.count("# EOF") == (accept != "text/plain")
