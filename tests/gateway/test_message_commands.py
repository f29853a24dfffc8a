"""Commands that take, move and drop messages, and have groups go back, at a running node."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import gateway.commands.admin.consume as consuming
from gateway.commands.common.output import ExitCode
from tests.gateway.cluster import until
from tests.gateway.serving import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.gateway.conftest import Ran
    from tests.gateway.serving import Process

    Weir = Callable[..., Ran]


def send(node: Process, topic: str, *bodies: str, **fields: str) -> None:
    for body in bodies:
        sent = node.api("POST", f"/topics/{topic}/messages", {"body": body, **fields})
        assert sent.status == 201, sent.body


def bodies(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [json.loads(line)["body"] for line in ran.out.splitlines()]


def figures(node: Process, topic: str, group: str = "default") -> tuple[int, int]:
    found = node.api("GET", f"/topics/{topic}/groups/{group}").json
    return found["ready"], found["leased"]


def test_consuming_only_looks_unless_told_to_ack(node: Process, weir: Weir) -> None:
    weir("queue", "create", "m-work")
    send(node, "m-work", "one", "two", "three")
    for _ in range(2):
        assert bodies(weir("message", "consume", "m-work")) == ["one", "two", "three"]
    assert figures(node, "m-work") == (3, 0)
    taken = weir("message", "consume", "m-work", "--ack", "-n", "2")
    assert bodies(taken) == ["one", "two"]
    assert [json.loads(line)["attempt"] for line in taken.out.splitlines()] == [1, 1]
    assert figures(node, "m-work") == (1, 0)
    assert bodies(weir("message", "consume", "m-work", "-n", "5")) == ["three"]
    assert "three" in weir("message", "consume", "m-work", "-o", "table").out
    assert bodies(weir("message", "consume", "m-work", "--ack")) == ["three"]
    assert bodies(weir("message", "consume", "m-work", "--ack")) == []
    missing = weir("message", "consume", "m-work", "--group", "none")
    assert missing.code == ExitCode.NOT_FOUND


def test_consuming_goes_through_all_queues_from_where_the_group_is(
    node: Process, weir: Weir
) -> None:
    weir("topic", "create", "m-stream", "--queues", "4")
    for name in ("a", "b"):
        weir("group", "create", "m-stream", name)
    for key in range(8):
        send(node, "m-stream", f"{key}", ordering_key=str(key))
    first = bodies(weir("message", "consume", "m-stream", "--group", "a", "--ack", "-n", "3"))
    rest = bodies(weir("message", "consume", "m-stream", "--group", "a"))
    assert sorted([*first, *rest]) == [str(key) for key in range(8)]
    assert len(bodies(weir("message", "consume", "m-stream", "--group", "b"))) == 8


def test_what_cannot_be_written_is_given_back(
    node: Process, weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    weir("queue", "create", "m-broken")
    send(node, "m-broken", "kept")

    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(consuming, "_write", fails)
        assert weir("message", "consume", "m-broken", "--ack", "--follow").code == 0
    assert figures(node, "m-broken") == (1, 0)
    (line,) = weir("message", "consume", "m-broken", "--ack").out.splitlines()
    assert json.loads(line)["attempt"] == 1


def test_following_shows_what_comes_later_until_there_are_enough(node: Process, weir: Weir) -> None:
    for name, ack in (("m-followed", ()), ("m-drained", ("--ack",))):
        weir("queue", "create", name)
        send(node, name, "early")
        command = [sys.executable, "-m", "gateway", "message", "consume", name, "--follow"]
        with subprocess.Popen(
            [*command, "-n", "2", *ack, "--data", str(node.data)],
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        ) as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["body"] == "early"
            send(node, name, "late")
            assert json.loads(follower.stdout.readline())["body"] == "late"
            assert follower.wait(30) == 0
    assert figures(node, "m-followed") == (2, 0)
    assert figures(node, "m-drained") == (0, 0)


def test_a_lease_taken_by_hand_is_acked_or_returned_by_its_token(node: Process, weir: Weir) -> None:
    weir("queue", "create", "m-leased")
    send(node, "m-leased", "one", "two")
    group = "/topics/m-leased/groups/default"
    first, second = node.api("POST", group + "/receive", {"messages": 5}).json["messages"]
    assert figures(node, "m-leased") == (0, 2)
    asked = {"acks": [first["token"]], "returns": [second["token"]]}
    assert node.api("POST", group + "/settle", asked).json == {"settled": 2, "lost": []}
    assert figures(node, "m-leased") == (1, 0)
    again = node.api("POST", group + "/settle", {"acks": [first["token"], second["token"]]}).json
    assert again["settled"] + len(again["lost"]) == 2
    assert again["lost"]
    assert node.api("POST", group + "/settle", {"acks": ["%"]}).status == 400
    assert node.api("POST", group + "/settle", {"acks": ["AAAA"]}).status in {200, 400}
    assert node.api("POST", group + "/receive", {"messages": 101}).status == 400


def test_a_group_goes_back_and_ahead_on_a_stream(node: Process, weir: Weir) -> None:
    weir("topic", "create", "m-sought", "--queues", "2")
    weir("group", "create", "m-sought", "g")
    send(node, "m-sought", "0", "1", "2", "3", "4")
    seek = ("group", "seek", "m-sought", "g", "--yes", "-o", "json", "--to")

    def consumed(*more: str) -> int:
        return len(bodies(weir("message", "consume", "m-sought", "--group", "g", *more)))

    assert consumed("--ack") == 5
    assert consumed() == 0
    found = weir(*seek, "earliest").json["queues"]
    assert [(each["queue"], each["offset"]) for each in found] == [(0, 0), (1, 0)]
    assert consumed() == 5
    weir(*seek, "latest")
    assert consumed() == 0
    weir(*seek, "1h")
    assert consumed() == 5
    weir(*seek, "2100-01-01")
    assert consumed() == 0
    (place,) = weir(*seek, "1", "--queue", "0").json["queues"]
    assert place["queue"] == 0
    assert weir(*seek, "1").code == ExitCode.USAGE
    assert weir(*seek, "earliest", "--queue", "2").code == ExitCode.USAGE
    assert weir(*seek, "soon").code == ExitCode.USAGE
    assert weir("group", "seek", "m-sought", "g", "--to", "latest").code == ExitCode.USAGE


def test_a_group_is_not_sought_while_it_is_used_nor_on_a_work_topic(
    node: Process, weir: Weir
) -> None:
    weir("topic", "create", "m-used", "--queues", "1")
    weir("group", "create", "m-used", "g")
    send(node, "m-used", "0")
    group = "/topics/m-used/groups/g"
    (leased,) = node.api("POST", group + "/receive").json["messages"]
    refused = weir("group", "seek", "m-used", "g", "--to", "earliest", "--yes")
    assert refused.code == ExitCode.FAILED
    assert "0 consumers and 1 leased messages" in refused.err
    node.api("POST", group + "/settle", {"acks": [leased["token"]]})
    assert weir("group", "seek", "m-used", "g", "--to", "earliest", "--yes").code == 0
    weir("queue", "create", "m-unsought")
    refused = weir("group", "seek", "m-unsought", "default", "--to", "earliest", "--yes")
    assert refused.code == ExitCode.FAILED
    assert "work topic" in refused.err


def test_only_what_is_old_is_purged(node: Process, weir: Weir) -> None:
    weir("queue", "create", "m-old")
    send(node, "m-old", "one", "two")
    purge = ("message", "purge", "m-old", "--yes", "-o", "json", "--older")
    assert weir(*purge, "1h").json == {"name": "m-old", "messages": 0}
    assert weir(*purge, "0s").json == {"name": "m-old", "messages": 2}
    assert weir("message", "purge", "m-old", "--older", "7d").code == ExitCode.USAGE
    both = {"older_ms": 0, "in_flight": True}
    assert node.api("POST", "/topics/m-old/purge", both).status == 400


def test_dead_letters_are_listed_and_brought_back(node: Process, weir: Weir) -> None:
    weir("queue", "create", "m-dead")
    weir("queue", "create", "m-source")
    weir("group", "set", "m-source", "default", "--attempts", "1", "--dead-letter", "m-dead")
    send(node, "m-source", "one", "two", "three")
    connection = node.amqp()
    channel = connection.channel()
    for _ in range(3):
        method, _properties, _body = channel.basic_get("m-source")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_get("m-source")  # once it answers, what came before is done
    connection.close()

    def ready() -> int:
        return int(node.api("GET", "/topics/m-dead").json["groups"][0]["ready"])

    until(lambda: ready() == 3, "they have come to another Raft group")
    listed = weir("dead-letters", "ls", "m-source", "-o", "json").json["dead_letters"]
    assert listed == [
        {
            "name": "m-dead",
            "sources": [{"topic": "m-source", "group": "default"}],
            "waiting": [{"group": "default", "ready": 3}],
            "exists": True,
            "moving": None,
        }
    ]
    assert "3 (default)" in weir("dead-letters", "ls").out
    task = weir("dead-letters", "redrive", "m-dead", "--limit", "2", "-o", "json").json
    assert (task["state"], task["moved"], task["to"]) == ("completed", 2, None)
    assert figures(node, "m-source") == (2, 0)
    slow = ("dead-letters", "redrive", "m-dead", "--rate", "1", "--no-wait", "-o", "json")
    assert weir(*slow).json["state"] in {"running", "completed"}
    assert weir("dead-letters", "moves", "m-dead", "-o", "name").out.count("\n") == 2
    assert weir("dead-letters", "redrive", "m-dead", "--rate", "501").code == ExitCode.USAGE


def test_messages_move_to_another_topic_and_a_task_can_be_ended(node: Process, weir: Weir) -> None:
    for name in ("m-from", "m-to"):
        weir("queue", "create", name)
    send(node, "m-from", *"abcdef")
    move = ("message", "move", "--from", "m-from", "--to", "m-to")
    task = weir(*move, "-n", "1", "-o", "json").json
    assert (task["moved"], task["to_move"], task["failure"]) == (1, 1, None)
    assert figures(node, "m-to") == (1, 0)
    weir(*move, "--rate", "1", "--no-wait")
    busy = weir(*move)
    assert (busy.code, "already" in busy.err) == (ExitCode.FAILED, True)
    ended = weir("dead-letters", "cancel", "m-from", "-o", "json").json
    assert ended["moved"] < 5
    assert weir("dead-letters", "cancel", "m-from").code == ExitCode.NOT_FOUND
    for to, code in (
        ("m-none", ExitCode.NOT_FOUND),
        ("m-from", ExitCode.USAGE),
        ("__metering", ExitCode.USAGE),
    ):
        assert weir("message", "move", "--from", "m-from", "--to", to).code == code
    failed = weir("dead-letters", "redrive", "m-from")
    assert failed.code == ExitCode.FAILED
    assert "never was a dead letter" in failed.err
