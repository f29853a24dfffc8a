"""What the coordinator tells a generator process of `weir bench amqp`, and what it hears back.

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


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Connected and waiting for `Go`."""


class Go(msgspec.Struct, tag="go", frozen=True):
    """The times of a run, ns of CLOCK_MONOTONIC; 0 = none (the run ends with its messages)."""

    start_ns: int
    measure_ns: int
    stop_ns: int


class Finish(msgspec.Struct, tag="finish", frozen=True):
    """Send the result now, whatever is still open."""


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """Messages received (consumer) or answered (producer) since the start."""

    messages: int


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The process gives up; the text is for the person who started the run."""

    reason: str


class Window(msgspec.Struct, frozen=True):
    """What happened in the measured part of the run, in one process."""

    messages: int
    elapsed_ns: int
    cpu_ns: int  # of this process
    latency: list[tuple[int, int]]  # Histogram.to_pairs
    latency_max_ns: int


class ProducerTotal(msgspec.Struct, frozen=True):
    """One producer's whole run."""

    number: int
    sent: int
    answered: int
    nacked: list[int]  # sequences


class ProducerResult(msgspec.Struct, tag="producer_result", frozen=True):
    window: Window
    producers: list[ProducerTotal]


class Seen(msgspec.Struct, frozen=True):
    """What one consumer saw of one producer on one queue (verify.Arrivals)."""

    queue: int
    producer: int
    intervals: list[tuple[int, int]]
    duplicated: int
    disordered: int
    misrouted: int


class ConsumerResult(msgspec.Struct, tag="consumer_result", frozen=True):
    window: Window
    received: int
    redelivered: int
    foreign: int
    seen: list[Seen]


Command = Go | Finish
Spec = ProducerSpec | ConsumerSpec
Report = Ready | Progress | Failed | ProducerResult | ConsumerResult
