"""What the coordinator of `weir bench amqp` tells a generator process before they `talk`.

Producer p takes the lanes (queues of the default exchange) in turn from `first_lane(p)`, so the
sequence that it first sends to a queue, and the stride there, follow from numbers that both
sides know.
"""

from __future__ import annotations

import msgspec

LANE_STEP = 7919  # a prime: producers start far apart, whatever the number of lanes


def first_lane(producer: int, lanes: int) -> int:
    """The lane of the producer's message 0."""
    return producer * LANE_STEP % lanes


def first_sequence(producer: int, lane: int, lanes: int) -> int:
    """The sequence of the first message that the producer sends to `lane`."""
    return (lane - first_lane(producer, lanes)) % lanes


def sent_to_lane(sent: int, producer: int, lane: int, lanes: int) -> int:
    """How many of the producer's first `sent` messages went to `lane`."""
    return max(sent - first_sequence(producer, lane, lanes) + lanes - 1, 0) // lanes


class ProducerSpec(msgspec.Struct, tag="producer", frozen=True):
    """One process of producers; each has its own connection."""

    url: str
    numbers: list[int]  # which producers of the run
    quotas: list[int]  # messages of each, 0 = until the stop time
    exchange: str
    routing_keys: list[str]  # one a lane
    size_bytes: int
    persistent: bool
    window: int  # open publishes of each at most
    rate: float  # messages a second of each on a fixed schedule, 0 = as the window allows


class ConsumerSpec(msgspec.Struct, tag="consumer", frozen=True):
    """One process of consumers; each has its own connection, and a channel a queue."""

    url: str
    consumers: list[list[int]]  # per consumer the numbers of its queues
    queue_names: list[str]
    stride: int  # lanes: the step of one producer's sequences on one queue
    prefetch: int
    acks: str  # an AckMode
