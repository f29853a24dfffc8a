"""How a benchmark ends that cannot be carried through."""

from __future__ import annotations


class BenchError(Exception):
    """The run cannot go on; the text is for the person who started it."""
