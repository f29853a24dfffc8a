"""What the coordinator of `weir bench rocketmq` tells a generator process before they `talk`."""

from __future__ import annotations

import msgspec

SIZE_MIN = 24  # the stamp, see rocketmq_wire
SIZE_MAX = 4 * 1024 * 1024  # the largest body that RocketMQ takes
BATCH_MAX = 1024  # messages or acks of one request, as Weir takes them


class SendSpec(msgspec.Struct, tag="send", frozen=True):
    """One process of producers; each has its own connection."""

    url: str
    run: int  # written into every body, so that older messages are told apart
    numbers: list[int]  # which producers of the run
    quotas: list[int]  # messages of each, 0 = until the stop time
    topic: str
    size_bytes: int
    batch: int  # messages of one request
    window: int  # requests of each producer under way at most


class ReceiveSpec(msgspec.Struct, tag="receive", frozen=True):
    """One process of consumers; each has its own connection."""

    url: str
    run: int
    consumers: int
    topic: str
    group: str
    batch: int  # messages of one receive at most
    ack_batch: int  # acks of one request
