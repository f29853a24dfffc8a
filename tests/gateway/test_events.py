"""What happens, for who follows it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec

from gateway.reporting import events
from gateway.reporting.events import EventBuffer
from tests.gateway.serving import Process, environment


def numbers(buffer: EventBuffer, after: int, most: int = 10_000) -> tuple[list[int], int]:
    found, lost = buffer.after(after, most)
    return [each.number for each in found], lost


def test_what_the_buffer_had_to_let_go_of_is_said() -> None:
    buffer = EventBuffer()
    assert buffer.after(0, 10) == ([], 0)
    for number in range(events.EVENTS_MAX + 5):
        buffer.add("info", "came", number=number)
    found, lost = numbers(buffer, 2)
    assert (found[0], found[-1], lost) == (6, events.EVENTS_MAX + 5, 3)
    assert numbers(buffer, 10, most=2) == ([11, 12], 0)
    assert numbers(buffer, events.EVENTS_MAX + 5) == ([], 0)
    assert numbers(buffer, 10**12) == ([], 0)


def test_an_event_is_as_large_as_it_may_be_and_a_line_stays_as_it_is() -> None:
    buffer = EventBuffer()
    line: Any = {
        "event": "connection closed",
        "level": "info",
        "timestamp": "2026-01-01T00:00:00Z",
        "reason": "x" * 10_000,
        "error": OSError("gone"),
    }
    kept = dict(line)
    assert buffer.line(None, "info", line) == kept
    (event,), _ = buffer.after(0, 1)
    assert (event.event, event.time) == ("connection closed", "2026-01-01T00:00:00Z")
    assert list(msgspec.json.decode(event.facts)) == ["left_out_bytes"]
    assert len(msgspec.json.encode(event)) < events.EVENT_BYTES_MAX


def test_lines_of_many_threads_have_numbers_of_their_own() -> None:
    buffer = EventBuffer()

    def write() -> None:
        for _ in range(500):
            buffer.add("info", "came")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert numbers(buffer, 0)[0] == list(range(1, 2_001))


def test_changes_are_told_with_who_made_them_and_refusals_with_why(node: Process) -> None:
    after = node.api("GET", "/events?limit=1000").json["next"]
    while page := node.api("GET", f"/events?after={after}&limit=1000").json["events"]:
        after = page[-1]["number"]
    assert node.api("POST", "/topics", {"name": "told"}).status == 201
    assert node.api("POST", "/topics", {"name": "told"}).status == 409
    node.api("GET", "/topics")
    node.amqp().close()
    found: list[dict[str, Any]] = []
    while not found or found[-1]["event"] != "connection closed":
        page = node.api("GET", f"/events?after={after}&wait=20").json
        assert page["events"], "it waits for an event"
        found += page["events"]
        after = page["next"]
    made, refused, opened, closed = found
    assert made["event"] == "administered"
    assert made["facts"] == {
        "status": 201,
        "method": "POST",
        "path": "/api/v1/topics",
        "tenant": "default",
        "by": "the operator",
    }
    assert refused["event"] == "not administered"
    assert "told" in refused["facts"]["reason"]
    assert opened["event"] == "connection opened"
    assert opened["facts"]["listener"] == "amqp.tcp"
    assert opened["facts"]["user"] == closed["facts"]["login"] == "guest"
    assert opened["facts"]["peer"] == closed["facts"]["peer"]


def test_who_leaves_in_the_middle_of_a_request_is_no_defect(node: Process) -> None:
    after = node.api("GET", "/events?limit=1000").json["next"]
    while page := node.api("GET", f"/events?after={after}&limit=1000").json["events"]:
        after = page[-1]["number"]
    host, _, port = node.admin_url.removeprefix("http://").partition(":")
    head = (
        "POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        f"Authorization: Bearer {node.token}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        peer.sendall(head.encode() + b'{"name": ')
        time.sleep(0.2)  # mostly its handler waits for the rest by then
    found = node.api("GET", f"/events?after={after}&wait=20").json["events"]
    assert [each["event"] for each in found] == ["not administered"]
    assert "the client has left" in found[0]["facts"]["reason"]


def test_nothing_new_is_waited_for_and_then_nothing_is_said(node: Process) -> None:
    after = 2**40
    started = time.monotonic()
    page = node.api("GET", f"/events?after={after}&wait=1").json
    assert page["lost"] == 0
    assert page["events"] == [] or time.monotonic() - started < 1
    assert node.api("GET", "/events?wait=21").status == 400
    assert node.http("GET", "/api/v1/events", token=None).status == 401


def test_the_command_writes_lines_of_json(node: Process) -> None:
    command = [sys.executable, "-m", "gateway", "events", "--data", str(node.data)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment()
    )
    lines = [json.loads(each) for each in ran.stdout.splitlines()]
    assert {"number", "time", "level", "event"} <= lines[0].keys()
    assert [each["number"] for each in lines] == sorted({each["number"] for each in lines})
