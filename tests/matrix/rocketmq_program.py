"""The RocketMQ peer's process: a command in JSON a line, an answer in JSON a line.

{"do": "write" | "read" | "refuse", "topic": …, …}
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from functools import cache

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

CONFIGURATION = ClientConfiguration(
    sys.argv[1], Credentials("weir", "weir-secret"), request_timeout=5
)


@cache
def producer() -> Producer:
    made = Producer(CONFIGURATION)
    made.startup()
    return made


@cache
def consumer(topic: str) -> SimpleConsumer:
    made = SimpleConsumer(
        CONFIGURATION, "default", {topic: FilterExpression("*")}, await_duration=2
    )
    made.startup()
    return made


def write(command: dict) -> object:
    message = Message()
    message.topic = command["topic"]
    message.body = base64.b64decode(command["body"])
    for name, value in command["properties"].items():
        message.add_property(name, value)
    if command["tag"]:
        message.tag = command["tag"]
    for key in command["keys"]:
        message.keys = key
    if command["group"]:
        message.message_group = command["group"]
    if command["delay_s"]:
        message.delivery_timestamp = int(time.time()) + command["delay_s"]
    return {"message_id": producer().send(message).message_id}


def take(command: dict) -> Message:
    ends = time.monotonic() + command["seconds"]
    while time.monotonic() < ends:
        found = consumer(command["topic"]).receive(1, 10)
        if found:
            return found[0]
    raise TimeoutError(f"nothing came over RocketMQ within {command['seconds']} s")


def read(command: dict) -> object:
    message = take(command)
    consumer(command["topic"]).ack(message)
    return {
        "body": base64.b64encode(message.body).decode(),
        "properties": message.properties,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "group": message.message_group,
        "message_id": message.message_id,
        "attempt": message.delivery_attempt,
        "corrupted": message.corrupted,
    }


def refuse(command: dict) -> object:
    message = take(command)
    consumer(command["topic"]).change_invisible_duration(message, 0)
    return {}


for line in sys.stdin:
    wanted = json.loads(line)
    try:
        answer = {"write": write, "read": read, "refuse": refuse}[wanted["do"]](wanted)
    except Exception as error:  # noqa: BLE001 - told to the test
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)  # noqa: T201 - the test reads it
# The client's threads never end.
os._exit(0)
