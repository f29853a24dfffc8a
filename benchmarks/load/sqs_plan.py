"""What `weir bench sqs` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

CONNECTIONS_MAX: Final = 10_000  # of one generator process: each is a socket here and there
MESSAGES_MAX: Final = 500_000  # of a run: each is a signed request in memory, 800 MB at 1 KB
BACKLOG_MAX: Final = 1_000_000
WAIT_S: Final = 20  # the longest poll there is


class Mode(StrEnum):
    """The shape of the load."""

    SEND = "send"
    """Each connection sends, one message at a time."""
    CYCLE = "cycle"
    """Each connection sends, receives one and deletes it."""
    POLL = "poll"
    """Each connection waits for messages that do not come: long polls on an empty queue."""


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """A run."""

    url: str
    key_id: str
    secret: str
    mode: Mode = Mode.SEND
    connections: int = 16
    size_bytes: int = 1024
    messages: int = 20_000
    """Of the measured part, in the modes that send."""
    warmup: int = 1_000
    """Messages before it."""
    rate: float = 0.0
    """Messages a second on a fixed schedule; 0: each as soon as its connection is free."""
    backlog: int = 0
    """Messages that wait in the queue before the start."""
    duration_s: float = 10.0
    """Of the measured part of `poll`."""
    region: str = "us-east-1"
    queue_name: str = "weir-bench"
    keep: bool = False
    """Leave the queue and what is in it; then the messages are not verified."""
    pids: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Messages of the run without the backlog."""
        return self.messages + self.warmup if self.mode is not Mode.POLL else 1
