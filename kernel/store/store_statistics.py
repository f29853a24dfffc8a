"""Figures of a store, for its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """All of them, since it was started."""

    commits: int
    """Journal batches synced."""
    entries_applied: int
    applied_index: Mapping[int, int]
    """By Raft group."""
    transient_bytes: int
    expired: int
    """Messages that groups have lost unacked because they were too old."""
    successors_waiting: int
    """Queues and groups that hand out nothing, for a sealed queue comes first (ADR 31)."""
    keys_held_back: int
    """Keys that sealed queues have unsettled, in each queue and group that holds them back."""
