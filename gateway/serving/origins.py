"""Has a process without adapters read what each of them wrote.

A store sends dead letters by their own keys, and routes them by their attributes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from adapters.amqp.messages import stored as amqp_stored
from adapters.mqtt.messages import stored as mqtt_stored
from adapters.sqs.messages import stored as sqs_stored

if TYPE_CHECKING:
    from kernel.api.origins import Origins


def quieten_grpc() -> None:
    """Before anything imports gRPC: what it would write to stderr in a format of its own, the
    adapter tells or the client hears.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def register_origins(origins: Origins) -> None:
    """Register the readers of every protocol's native blocks."""
    quieten_grpc()
    from adapters.rocketmq.messages import stored as rocketmq_stored  # which imports gRPC

    for stored in (amqp_stored, mqtt_stored, rocketmq_stored, sqs_stored):
        stored.register_origin(origins)
