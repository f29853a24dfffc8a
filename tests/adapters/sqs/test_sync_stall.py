"""A whole node whose disk holds its syncs: boto3 hears no ok for what is not on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.sqs.service import REGION
from tests.gateway import serving
from tests.sqs_client import sqs_client

STALL_S = 2.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks files up in /proc")


def client_of(node: serving.Process) -> Any:
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    return sqs_client(url, KEY_ID, SECRET, region=REGION, max_pool_connections=20)


class Scene:
    """Queues and messages, and every call whose answer says that something is on disk."""

    def __init__(self, sqs: Any) -> None:
        self.sqs = sqs
        self.url = sqs.create_queue(QueueName="work")["QueueUrl"]
        self.doomed = sqs.create_queue(QueueName="doomed")["QueueUrl"]
        self.full = sqs.create_queue(QueueName="full")["QueueUrl"]
        self.empty = sqs.create_queue(QueueName="empty")["QueueUrl"]
        for url in (self.url, self.full):
            entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
        got = sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=4)["Messages"]
        self.handles = [message["ReceiptHandle"] for message in got]

    def durable(self) -> dict[str, Callable[[], Any]]:
        sqs, url = self.sqs, self.url
        one, two, three, four = self.handles
        entry = {"Id": "a", "MessageBody": "new"}
        return {
            "SendMessage": lambda: sqs.send_message(QueueUrl=url, MessageBody="new"),
            "SendMessageBatch": lambda: sqs.send_message_batch(QueueUrl=url, Entries=[entry]),
            "ReceiveMessage": lambda: sqs.receive_message(QueueUrl=url),
            "DeleteMessage": lambda: sqs.delete_message(QueueUrl=url, ReceiptHandle=one),
            "DeleteMessageBatch": lambda: sqs.delete_message_batch(
                QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": two}]
            ),
            "ChangeMessageVisibility": lambda: sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=three, VisibilityTimeout=600
            ),
            "ChangeMessageVisibilityBatch": lambda: sqs.change_message_visibility_batch(
                QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": four, "VisibilityTimeout": 0}]
            ),
            "SetQueueAttributes": lambda: sqs.set_queue_attributes(
                QueueUrl=url, Attributes={"VisibilityTimeout": "77"}
            ),
            "TagQueue": lambda: sqs.tag_queue(QueueUrl=url, Tags={"a": "b"}),
            "CreateQueue": lambda: sqs.create_queue(QueueName="fresh"),
            "DeleteQueue": lambda: sqs.delete_queue(QueueUrl=self.doomed),
            "PurgeQueue": lambda: sqs.purge_queue(QueueUrl=self.full),
        }

    def goes_on(self, node: serving.Process) -> None:
        """What changes nothing is answered whatever the disk does."""
        assert self.sqs.get_queue_url(QueueName="work")["QueueUrl"] == self.url
        assert self.sqs.list_queues(QueueNamePrefix="work")["QueueUrls"] == [self.url]
        self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])
        assert "Messages" not in self.sqs.receive_message(QueueUrl=self.empty)
        for path in ("/livez", "/readyz"):
            assert node.http("GET", path, token=None).status == 200


def test_no_ok_comes_before_its_sync(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    program = (sys.executable, "-m", "tests.adapters.sqs.held_node")
    with serving.launched(tmp_path / "data", program=program, HELD_BY=str(hold)) as node:
        node.serves()
        scene = Scene(client_of(node))
        calls = scene.durable()
        hold.touch()
        began_s = time.monotonic()
        with ThreadPoolExecutor(len(calls)) as threads:
            answers = {name: threads.submit(call) for name, call in calls.items()}
            try:
                while time.monotonic() < began_s + STALL_S:
                    scene.goes_on(node)
                early = [name for name, answer in answers.items() if answer.done()]
            finally:
                hold.unlink()
            assert early == []
            assert not wait(answers.values(), timeout=20).not_done
        results = {name: answer.result() for name, answer in answers.items()}
        assert results["SendMessageBatch"].get("Failed") is None
        assert len(results["ReceiveMessage"]["Messages"]) == 1
        scene.sqs.close()
        # Whoever has heard ok finds it again, even if the process had died in the same moment.
        node.kill()
    with serving.serving(tmp_path / "data") as node:
        sqs = client_of(node)
        names = [url.rpartition("/")[2] for url in sqs.list_queues()["QueueUrls"]]
        assert names == ["empty", "fresh", "full", "work"]
        url = sqs.get_queue_url(QueueName="work")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == "77"
        # 10 and 2 new ones, less 2 deleted; one of 4 received given back, one received meanwhile.
        assert attributes["ApproximateNumberOfMessages"] == "8"
        assert attributes["ApproximateNumberOfMessagesNotVisible"] == "2"
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b"}
        full = sqs.get_queue_url(QueueName="full")["QueueUrl"]
        assert "Messages" not in sqs.receive_message(QueueUrl=full)
        sqs.close()
