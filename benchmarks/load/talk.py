"""What a coordinator tells its generator processes after their spec, and what it hears back."""

from __future__ import annotations

import msgspec


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Connected and waiting for `Go`."""


class Go(msgspec.Struct, tag="go", frozen=True):
    """The times of a run, ns of CLOCK_MONOTONIC; 0 = none (the run ends with its messages)."""

    start_ns: int
    measure_ns: int
    stop_ns: int
    whole: (
        bool  # without a warm-up: everything is measured, however late a process opens its window
    )


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
    unanswered: list[int] = []  # as many as the window at most


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
Report = Ready | Progress | Failed | ProducerResult | ConsumerResult
