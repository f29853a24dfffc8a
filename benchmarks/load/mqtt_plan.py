"""One run of `weir bench mqtt`: its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

SIZE_MIN = 16  # the key of a message and the time it was sent


class Load(StrEnum):
    """The shape of the load."""

    PAIRS = "pairs"
    FANOUT = "fanout"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """One run. Times in seconds; see `weir bench mqtt --help` for each."""

    url: str
    load: Load = Load.PAIRS
    version: int = 5
    qos: int = 1
    kept: bool = False
    size_bytes: int = 256
    producers: int = 4
    subscribers: int = 4
    connections: int = 10_000
    window: int = 100
    duration_s: float = 10.0
    warmup_s: float = 2.0
    prefix: str = "weir-bench"
    pids: list[int] = field(default_factory=list)
