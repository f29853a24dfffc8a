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
