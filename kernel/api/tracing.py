"""Which messages of a topic are traced."""

from __future__ import annotations

from enum import StrEnum


class TraceMode(StrEnum):
    """Which messages of a topic are traced."""

    OFF = "off"
    SAMPLE = "sample"
    """One in 100 (`broker.tracing`)."""
    ALL = "all"
