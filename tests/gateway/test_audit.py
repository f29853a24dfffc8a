"""Who has changed what, in the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from gateway.reporting import audit
from gateway.reporting.audit import AuditTrail
from kernel.common.errors import Code, KernelError
from tests.simulator.world import World, simulated

if TYPE_CHECKING:
    from tests.gateway.serving import Process


def test_changes_are_noted_with_who_made_them_and_refusals_with_why(node: Process) -> None:
    first = node.api("GET", "/audit?limit=1000").json["next"]
    assert node.api("POST", "/topics", {"name": "audited"}).status == 201
    assert node.api("POST", "/topics", {"name": "audited"}).status == 409
    sent = node.api("POST", "/topics/audited/messages", {"body": "what clients do all day"})
    assert sent.status == 201
    node.api("GET", "/topics")
    assert node.api("DELETE", "/topics/audited").status == 200
    page = node.api("GET", f"/audit?offset={first}").json
    made, refused, removed = page["entries"]
    assert (made["status"], made["method"], made["path"]) == (201, "POST", "/api/v1/topics")
    assert (made["by"], made["tenant"]) == ("the operator", "default")
    assert refused["status"] == 0
    assert "exists" in refused["reason"]
    assert removed["path"] == "/api/v1/topics/audited"
    assert page["next"] == removed["offset"] + 1
    assert node.api("GET", f"/audit?offset={page['next']}").json["entries"] == []
    assert node.api("GET", f"/audit?since_ms={made['time_ms'] + 10**9}").json["entries"] == []
    listed = {each["name"] for each in node.api("GET", "/topics").json["topics"]}
    assert audit.AUDIT_TOPIC not in listed
    figures = node.http("GET", "/metrics").body.decode()
    assert 'weir_audit_entries_total{outcome="missed"} 0.0' in figures


def entry(number: int = 1) -> dict[str, Any]:
    return {
        "by": "ann",
        "method": "PUT",
        "path": f"/api/v1/{number}",
        "tenant": "default",
        "status": 200,
    }


@simulated()
async def test_entries_are_read_in_order_from_an_offset_and_are_as_long_as_they_may_be(
    world: World,
) -> None:
    trail = AuditTrail(world.client, world.clock, "here")
    assert await trail.read(0, 0, 10) == ([], 0, 0)
    for number in range(3):
        await trail.note(**entry(number))
    await trail.note(**entry() | {"path": "x" * 10_000, "reason": "y" * 10_000})
    rows, behind, first = await trail.read(1, 0, 2)
    assert [each.path for each in rows] == ["/api/v1/1", "/api/v1/2"]
    assert (behind, first) == (3, 0)
    (longest,), _, _ = await trail.read(3, 0, 10)
    assert len(longest.path) == len(longest.reason) == audit.TEXT_CHARACTERS_MAX
    assert (trail.noted, trail.missed) == (4, 0)
    # Another process has the same topic.
    other = AuditTrail(world.client, world.clock, "there")
    await other.note(**entry())
    assert (await trail.read(4, 0, 10))[0][0].node == "there"


class Refusing:
    """A kernel client whose disk is full, or which does not answer."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers

    def topic(self, tenant: str, name: str) -> None:
        return None

    async def administer(self, change: object) -> object:
        if self._answers:
            raise KernelError(Code.REJECTED, "the disk is full")
        await asyncio.Event().wait()
        return None


class Log:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def error(self, event: str, **facts: Any) -> None:
        self.lines.append({"event": event, **facts})


@pytest.mark.parametrize("answers", [True, False])
async def test_an_entry_that_cannot_be_stored_is_in_the_log_and_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    log = Log()
    monkeypatch.setattr(audit, "_log", log)
    monkeypatch.setattr(audit, "WAIT_S", 0.01)

    class Clock:
        def wall_ms(self) -> int:
            return 7

        def monotonic_ms(self) -> int:
            return 7

    trail = AuditTrail(cast("Any", Refusing(answers=answers)), Clock(), "here")
    await trail.note(**entry())
    assert (trail.noted, trail.missed) == (0, 1)
    (line,) = log.lines
    assert line["event"] == "audit entry missed"
    assert line["entry"]["by"] == "ann"
