"""What the rows do not say: what takes no right the second time, and names with `$`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.mqtt.broker import WireClient
from tests.rights.amqp_rows import queue
from tests.rights.site import PASSWORD, ROOT, USER, Actor, Refused, Site, running_site, tried
from tests.rights.sqs_rows import redrive


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("ways")) as running:
        yield running


def test_declaring_a_queue_again_as_it_is_takes_no_right_on_its_dead_letters(site: Site) -> None:
    declare = queue(x_dead_letter_exchange="", x_dead_letter_routing_key="letters")
    with Actor(site, ROOT) as root, Actor(site, USER) as user:
        root.name = user.name = "again"
        declare(root)
        site.allow("configure topic:again")
        tried(declare, user)
        site.allow("configure topic:again-2")
        user.name = "again-2"
        with pytest.raises(Refused):
            tried(declare, user)


def test_creating_a_queue_again_as_it_is_takes_no_right_on_its_dead_letters(site: Site) -> None:
    def create(who: Actor) -> None:
        attributes = {"RedrivePolicy": redrive(who, "letters-2")}
        who.sqs.create_queue(QueueName=who("{n}"), Attributes=attributes)

    with Actor(site, ROOT) as root, Actor(site, USER) as user:
        root.name = user.name = "sqs-again"
        root.sqs.create_queue(QueueName="letters-2")
        create(root)
        site.allow("configure topic:sqs-again*")
        tried(create, user)
        user.name = "sqs-again-2"
        with pytest.raises(Refused):
            tried(create, user)


def test_a_move_task_brings_nothing_back_to_where_its_starter_may_not_send(site: Site) -> None:
    with Actor(site, ROOT) as root, Actor(site, USER) as user:
        sqs = root.sqs
        for name in ("m-dead", "m-other"):
            sqs.create_queue(QueueName=name)
        for name in ("m-mine", "m-theirs"):
            attributes = {"RedrivePolicy": redrive(root, "m-dead"), "VisibilityTimeout": "0"}
            sqs.create_queue(QueueName=name, Attributes=attributes)
        url = root.url("m-theirs")
        sqs.send_message(QueueUrl=url, MessageBody="x")
        _receive_until(sqs, url, gone=True)
        _until_there(sqs, root.url("m-dead"))
        # It was a dead letter of a queue whose dead letters go elsewhere now.
        sqs.set_queue_attributes(
            QueueUrl=url, Attributes={"RedrivePolicy": redrive(root, "m-other")}
        )
        site.allow("consume topic:m-dead", "inspect topic:m-dead", "publish topic:m-mine")
        user.sqs.start_message_move_task(SourceArn=user.arn("m-dead"))
        _until_over(user)
        assert "Messages" not in sqs.receive_message(QueueUrl=url)
        root.sqs.start_message_move_task(SourceArn=root.arn("m-dead"))
        _receive_until(sqs, url, gone=False)


def _receive_until(sqs: Any, url: str, *, gone: bool) -> None:
    """Until a queue has no message any more, or one."""
    for _ in range(100):
        found = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
        if ("Messages" in found) is not gone:
            return
        time.sleep(0.02)
    raise AssertionError("it stays as it is")


def _until_there(sqs: Any, url: str) -> None:
    """Until a message can be received, which is not."""
    name = "ApproximateNumberOfMessages"
    for _ in range(100):
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        if found["Attributes"][name] == "1":
            return
        time.sleep(0.02)
    raise AssertionError("nothing comes")


def _until_over(who: Actor) -> None:
    for _ in range(100):
        (task,) = who.sqs.list_message_move_tasks(SourceArn=who.arn("m-dead"))["Results"]
        if task["Status"] != "RUNNING":
            assert task["Status"] == "FAILED"
            return
        time.sleep(0.02)
    raise AssertionError("it runs")


def test_a_wildcard_of_a_binding_gets_no_name_that_begins_with_a_dollar(site: Site) -> None:
    async def publish() -> None:
        port = site.node.listeners["mqtt.tcp"]
        client = WireClient(*await asyncio.open_connection("127.0.0.1", port), 5)
        await client.connect("dollars", login=(ROOT, PASSWORD.encode()))
        assert await client.publish("$own/x") == 0
        assert await client.publish("plain/x") == 0
        client.writer.close()

    site.admin("PUT", "/policies/dollars", {"rules": ["allow publish,consume tree:$own/#"]})
    site.admin("PATCH", "/users/root", {"policies": ["full", "dollars"]})
    with Actor(site, ROOT) as root:
        for name, key in (("all", "#"), ("one", "*.x"), ("named", "$own.#")):
            root.channel.queue_declare(name, durable=True)
            root.channel.queue_bind(name, "amq.topic", key)
        asyncio.run(publish())
        keys = {name: _keys(root, name) for name in ("all", "one", "named")}
    assert keys == {"all": ["plain.x"], "one": ["plain.x"], "named": ["$own.x"]}


def _keys(who: Actor, name: str) -> list[str]:
    found: list[str] = []
    while True:
        method, _, _ = who.channel.basic_get(name, auto_ack=True)
        if method is None:
            return found
        found.append(method.routing_key)
