"""boto3."""

from __future__ import annotations

import base64
import json
import time
from decimal import Decimal
from typing import Any, ClassVar

from tests.gateway.serving import Process
from tests.matrix.contract import Can, Got, Neutral
from tests.sqs_client import sqs_client

RESERVED = ("content_type", "correlation_id", "reply_to", "message_id", "tag")


class SqsPeer:
    name = "sqs"
    # SQS takes no empty body, and an ordering key only on a queue `*.fifo`, a name that RocketMQ
    # cannot spell.
    can = Can.BINARY | Can.NO_MESSAGE_ID | Can.DELAY
    values: ClassVar[dict[str, object]] = {
        "text": "grüße",
        "whole": 5,
        "real": 2.5,
        "yes": True,
        "bytes": b"\x00\xff",
    }

    def __init__(self, node: Process, home: str) -> None:
        self._sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")

    def close(self) -> None:
        self._sqs.close()

    def _url(self, topic: str) -> str:
        url: str = self._sqs.get_queue_url(QueueName=topic)["QueueUrl"]
        return url

    def write(self, topic: str, message: Neutral, *, delay_s: int = 0) -> str | None:
        attributes = {name: _value(value) for name, value in message.attributes.items()}
        for name in RESERVED:
            if (given := getattr(message, name)) is not None:
                attributes[f"weir.{name}"] = _value(given)
        if message.keys:
            attributes["weir.keys"] = _value(" ".join(sorted(message.keys)))
        if any(byte < 9 or byte > 0xF7 for byte in message.body):
            # No text that SQS takes.
            attributes["weir.encoding"] = _value("base64")
            text = base64.b64encode(message.body).decode()
        else:
            text = message.body.decode()
        sent = self._sqs.send_message(
            QueueUrl=self._url(topic),
            MessageBody=text,
            MessageAttributes=attributes,
            DelaySeconds=delay_s,
        )
        ident: str = sent["MessageId"]
        return ident

    def _take(self, topic: str, seconds: float) -> tuple[str, dict[str, Any]]:
        url = self._url(topic)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found = self._sqs.receive_message(
                QueueUrl=url,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
                WaitTimeSeconds=1,
            ).get("Messages")
            if found:
                return url, found[0]
        raise AssertionError(f"nothing came over SQS within {seconds} s")

    def read(self, topic: str, *, seconds: float = 10) -> Got:
        url, message = self._take(topic, seconds)
        self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        attributes = {
            name: _plain(value) for name, value in message.get("MessageAttributes", {}).items()
        }
        attributes.update(json.loads(str(attributes.pop("weir.more", "{}"))))
        reserved = {
            name: str(attributes.pop(f"weir.{name}"))
            for name in RESERVED
            if f"weir.{name}" in attributes
        }
        body = message["Body"].encode()
        if attributes.pop("weir.encoding", None) == "base64":
            body = base64.b64decode(body)
        return Got(
            body=body,
            keys=frozenset(str(attributes.pop("weir.keys", "")).split()),
            attributes=attributes,
            ordering_key=message["Attributes"].get("MessageGroupId"),
            uid=message["MessageId"],
            attempt=int(message["Attributes"]["ApproximateReceiveCount"]),
            **reserved,
        )

    def refuse(self, topic: str, *, seconds: float = 10) -> None:
        url, message = self._take(topic, seconds)
        self._sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )

    def shows(self, value: object) -> object:
        return str(value) if isinstance(value, Decimal) else value


def _value(value: object) -> dict[str, object]:
    if isinstance(value, bool):
        return {"DataType": "String.bool", "StringValue": "true" if value else "false"}
    if isinstance(value, int | float):
        return {"DataType": "Number", "StringValue": repr(value)}
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": value}
    return {"DataType": "String", "StringValue": value}


def _plain(value: dict[str, Any]) -> object:
    if value["DataType"] == "Binary":
        return value["BinaryValue"]
    if value["DataType"] == "String.bool":
        return value["StringValue"] == "true"
    if value["DataType"] == "Number":
        return json.loads(value["StringValue"])
    return value["StringValue"]
