"""What `weir serve` says when it is up: where, who, and how to try it. Talk, so to stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gateway
from auth.development import (
    DEVELOPMENT_KEY_ID,
    DEVELOPMENT_PASSWORD,
    DEVELOPMENT_SECRET,
    DEVELOPMENT_USER,
    Listener,
    development_principals,
)
from gateway.commands.api import DEFAULT_DATA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.base import Adapter
    from gateway.config_schema import Settings

TRY = {
    "rocketmq": (
        "weir topic create weir-bench{data}; weir bench rocketmq "
        "--url rocketmq://weir:weir-secret@{address} --duration 5"
    ),
    "amqp": "weir bench amqp --url amqp://guest:guest@{address}/%2f --duration 5",
    "mqtt": "mosquitto_pub -L mqtt://guest:guest@{address}/hello -q 1 -m world",
    "sqs": (
        "AWS_ACCESS_KEY_ID=weir AWS_SECRET_ACCESS_KEY=weir-secret AWS_DEFAULT_REGION=us-east-1 "
        "aws --endpoint-url http://{address} sqs create-queue --queue-name hello"
    ),
}
"""One command per protocol, to be copied."""


def greeting(
    settings: Settings, adapters: Sequence[Adapter], notes: Sequence[str], admin: str | None
) -> str:
    """The text. `notes`: what this process is, then what else there is to say of it; `admin`: URL
    of the admin side, if it is served.
    """
    lines = [f"Weir {gateway.__version__}, {notes[0]}", *(f"  {each}" for each in notes[1:])]
    for adapter in adapters:
        for name, (host, port) in adapter.addresses().items():
            lines.append(f"  {adapter.name:<9} {host}:{port} ({name})")
    if admin is not None:
        lines.append(f"  admin     {admin}  /livez /readyz /metrics /api/v1")
    unserved = [name for name, each in settings.protocols.items() if not each.enabled]
    if unserved:
        lines.append(f"  switched off: {', '.join(unserved)}")
    listeners = [
        Listener(".".join(path), each.host, each.port)
        for path, each in settings.open_listeners().items()
    ]
    if development_principals(listeners) is not None:
        lines.append(
            f"  development logins (loopback only): {DEVELOPMENT_USER}/{DEVELOPMENT_PASSWORD},"
            f" access key {DEVELOPMENT_KEY_ID} with secret {DEVELOPMENT_SECRET.decode()}"
        )
    # A command finds the server by its data directory.
    data = f" --data {settings.node.data}" if settings.node.data != DEFAULT_DATA else ""
    for adapter in adapters:
        command = TRY.get(adapter.name)
        if command is not None:
            host, port = next(iter(adapter.addresses().values()))
            said = command.format(address=f"{host}:{port}", data=data)
            lines.append(f"  try: {said}")
    return "\n".join(lines) + "\n"
