"""One run of `weir bench amqp`: its options, and who does what in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from benchmarks.load.amqp_deliveries import AckMode
from benchmarks.load.amqp_spec import ConsumerSpec, ProducerSpec
from benchmarks.load.measured_run import shares

QUEUES_MAX = 10_000  # names have four digits, so that all templates have one length


class Mode(StrEnum):
    """Which halves of the load run."""

    BOTH = "both"
    PRODUCE = "produce"
    CONSUME = "consume"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """One run. Times in seconds; see `weir bench amqp --help` for each."""

    url: str
    mode: Mode = Mode.BOTH
    size_bytes: int = 1024
    producers: int = 1
    consumers: int = 1
    producer_processes: int = 1
    consumer_processes: int = 1
    window: int = 200
    prefetch: int = 200
    acks: AckMode = AckMode.EACH
    rate: float = 0.0
    duration_s: float = 10.0
    messages: int = 0  # 0 = by time, or consuming: as many as the queues say they hold
    warmup_s: float = 2.0
    queues: int = 1
    fanout: bool = False
    queue_name: str = "weir-bench"
    queue_type: str = "classic"
    durable: bool = True
    pids: list[int] = field(default_factory=list)
    metrics_url: str = ""
    drain_timeout_s: float = 30.0
    keep: bool = False

    @property
    def by_messages(self) -> bool:
        """The run ends with its last message; else at its time."""
        return bool(self.messages) or self.mode is Mode.CONSUME

    @property
    def lead_s(self) -> float:
        """Seconds from the start to the measured window; a counted run is measured whole."""
        return 0.0 if self.by_messages else self.warmup_s

    @property
    def lanes(self) -> int:
        """Routing keys that each producer takes in turn."""
        return 1 if self.fanout else self.queues

    @property
    def copies(self) -> int:
        """Queues that one publish reaches."""
        return self.queues if self.fanout else 1

    def queue_names(self) -> list[str]:
        return [f"{self.queue_name}-{number:04}" for number in range(self.queues)]


def producer_specs(options: LoadOptions) -> list[ProducerSpec]:
    """One spec a producer process; messages and rate are divided among all producers."""
    if options.mode is Mode.CONSUME:
        return []
    names = [""] if options.fanout else options.queue_names()
    share, rest = divmod(options.messages, options.producers)
    quotas = [share + (number < rest) for number in range(options.producers)]
    return [
        ProducerSpec(
            url=options.url,
            numbers=numbers,
            quotas=[quotas[number] for number in numbers],
            exchange=options.queue_name if options.fanout else "",
            routing_keys=names,
            size_bytes=options.size_bytes,
            persistent=options.durable,
            window=options.window,
            rate=options.rate / options.producers,
        )
        for numbers in shares(options.producers, options.producer_processes)
    ]


def consumer_specs(options: LoadOptions) -> list[ConsumerSpec]:
    """One spec a consumer process; queues are dealt to consumers, or consumers to queues."""
    if options.mode is Mode.PRODUCE or not options.consumers:
        return []
    if options.consumers <= options.queues:
        queues = shares(options.queues, options.consumers)
    else:
        queues = [[number % options.queues] for number in range(options.consumers)]
    return [
        ConsumerSpec(
            url=options.url,
            consumers=[queues[number] for number in numbers],
            queue_names=options.queue_names(),
            stride=options.lanes,
            prefetch=options.prefetch,
            acks=options.acks,
        )
        for numbers in shares(options.consumers, options.consumer_processes)
    ]
