"""boto3, on a FIFO queue."""

from __future__ import annotations

import time
from typing import Any

from botocore.exceptions import ClientError

from tests.chaos.clients.port import ANSWER_SECONDS, POLL_SECONDS, Refused, Taken
from tests.sqs_client import sqs_client

VISIBLE_SECONDS = 6
BATCH = 10


def connect(port: int) -> Any:
    url = f"http://127.0.0.1:{port}"
    return sqs_client(url, connect_timeout=1, read_timeout=ANSWER_SECONDS)


class SqsPublisher:
    copies = 1

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._sqs = connect(ports["sqs"])
        self._url = self._sqs.get_queue_url(QueueName=topic)["QueueUrl"]

    def send(self, ident: str, key: str) -> None:
        try:
            self._sqs.send_message(
                QueueUrl=self._url,
                MessageBody=ident,
                MessageGroupId=key,
                MessageDeduplicationId=ident.replace("/", "-"),
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise Refused(str(error)) from error
            raise

    def close(self) -> None:
        self._sqs.close()


class SqsConsumer:
    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._sqs = connect(ports["sqs"])
        self._url = self._sqs.get_queue_url(QueueName=topic)["QueueUrl"]

    def take(self) -> list[Taken]:
        began = time.monotonic()
        found = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=BATCH,
            VisibilityTimeout=VISIBLE_SECONDS,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            WaitTimeSeconds=int(POLL_SECONDS),
        ).get("Messages", [])
        at = time.monotonic()
        return [
            Taken(
                each["Body"],
                int(each["Attributes"]["ApproximateReceiveCount"]) > 1,
                at,
                each["ReceiptHandle"],
                began + VISIBLE_SECONDS,
            )
            for each in found
        ]

    def ack(self, taken: list[Taken]) -> bool:
        answer = self._sqs.delete_message_batch(
            QueueUrl=self._url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": each.handle}
                for number, each in enumerate(taken)
            ],
        )
        failed = answer.get("Failed", [])
        if failed:
            raise RuntimeError(f"not deleted: {failed[0]}")
        return True

    def close(self) -> None:
        self._sqs.close()
