"""The volatile group's log: entries in bounded memory, gone when nothing refers to them.

Same state machine, same dispatchers as the durable groups; only there is no journal below, so an
entry counts as committed at once (DESIGN.md 3 "Durable or volatile").
"""

from __future__ import annotations


class VolatileLog:
    """Entries by index, counted by references. `machine.Retention` of the volatile group."""

    def __init__(self) -> None:
        self._entries: dict[int, bytes] = {}
        self._references: dict[int, int] = {}
        self.last = 0
        self.bytes = 0

    def append(self, body: bytes) -> int:
        """Keep an entry; its index."""
        self.last += 1
        self._entries[self.last] = body
        self.bytes += len(body)
        return self.last

    def entry(self, index: int) -> bytes | None:
        """An entry; None if nothing refers to it any more."""
        return self._entries.get(index)

    def sweep(self, index: int) -> None:
        """The entry has been applied: let it go if nothing refers to it."""
        if index not in self._references:
            self._drop(index)

    def retain(self, group: int, index: int, references: int) -> None:
        """So many more queue places refer to the entry."""
        self._references[index] = self._references.get(index, 0) + references

    def release(self, group: int, index: int, references: int) -> None:
        """So many of them are gone."""
        left = self._references.get(index, 0) - references
        if left > 0:
            self._references[index] = left
        else:
            self._references.pop(index, None)
            self._drop(index)

    def _drop(self, index: int) -> None:
        body = self._entries.pop(index, None)
        if body is not None:
            self.bytes -= len(body)

    @property
    def count(self) -> int:
        """Entries kept."""
        return len(self._entries)
