"""Where one message lies, and what has become of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.gateway.serving import environment

if TYPE_CHECKING:
    from tests.gateway.serving import Process


def send(node: Process, topic: str, **fields: str) -> str:
    sent = node.api("POST", f"/topics/{topic}/messages", {"body": "x", **fields})
    assert sent.status == 201, sent.body
    uid: str = sent.json["uid"]
    return uid


def traced(node: Process, topic: str, ident: str, query: str = "") -> Any:
    return node.api("GET", f"/topics/{topic}/trace/{ident}?{query}")


def states(answer: Any) -> dict[str, str]:
    (found,) = answer.json["found"]
    return {each["group"]: each["state"] for each in found["groups"]}


def test_a_message_is_found_by_its_own_id_and_by_its_publishers(node: Process) -> None:
    node.api("POST", "/topics", {"name": "t-work", "queues": 2})
    node.api("POST", "/topics/t-work/groups", {"name": "second"})
    uids = [send(node, "t-work", message_id=f"order-{number}") for number in range(20)]
    found = traced(node, "t-work", uids[7])
    (one,) = found.json["found"]
    assert one["message"]["uid"] == uids[7]
    assert states(found) == {"second": "waiting"}
    assert traced(node, "t-work", "order-7").json["found"] == [one]
    assert traced(node, "t-work", uids[7].replace("-", "").upper()).json["found"] == [one]
    # The id stands in an attribute of another message: that is not it.
    node.api("POST", "/topics/t-work/messages", {"body": uids[7], "attributes": {"about": uids[7]}})
    again = traced(node, "t-work", uids[7]).json
    assert (again["found"], again["looked_at"], again["next"]) == ([one], 21, None)
    missing = traced(node, "t-work", "order-99").json
    assert (missing["found"], missing["next"]) == ([], None)
    assert traced(node, "t-work", "x" * 1_025).status == 400


def test_the_search_goes_on_where_it_was_bounded(node: Process) -> None:
    node.api("POST", "/topics", {"name": "t-long", "queues": 2})
    uids = [send(node, "t-long") for _ in range(30)]
    for uid in uids[::9]:
        page, requests = traced(node, "t-long", uid, "limit=4").json, 1
        while not page["found"] and page["next"]:
            queue, offset = page["next"]
            assert page["looked_at"] == 4
            page = traced(node, "t-long", uid, f"limit=4&from_queue={queue}&offset={offset}").json
            requests += 1
        (found,) = page["found"]
        assert found["message"]["uid"] == uid
        assert requests <= 9


def test_the_command_says_who_has_it_and_that_it_is_done_with(node: Process) -> None:
    data = ("--data", str(node.data))

    def weir(*words: str) -> tuple[int, str, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "gateway", "message", "trace", *words, *data],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment(),
        )
        return ran.returncode, ran.stdout, ran.stderr

    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("t-held", durable=True)
        uid = send(node, "t-held")
        method = None
        while method is None:
            method, _, _ = channel.basic_get("t-held")
        assert states(traced(node, "t-held", uid)) == {"default": "held"}
        code, out, problem = weir(uid, "--topic", "t-held", "--since", "1h", "-o", "json")
        assert code == 0, problem
        (found,) = json.loads(out)["found"]
        assert found["groups"][0]["state"] == "held"
        channel.basic_nack(method.delivery_tag, requeue=True)
        method, _, _ = channel.basic_get("t-held")
        while method is None:
            method, _, _ = channel.basic_get("t-held")
        code, out, _ = weir(uid, "--topic", "t-held")
        assert "held, 1 deliveries came to nothing" in out
        channel.basic_ack(method.delivery_tag)
    code, _, problem = weir("0" * 32, "--topic", "t-held")
    assert code == 4
    assert "no message" in problem
