"""What happened a moment ago: bounded memories of this process. Time is a parameter.

They decide nothing that must hold after a restart or on another gateway: a second purge, a name
used again too soon, a repeated deletion, a figure that is called approximate by SQS itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

KeyT = TypeVar("KeyT", bound="Hashable")


class Recents(Generic[KeyT]):
    """Keys with the time they were noted at, at most `keys_max` of them; the oldest go first."""

    __slots__ = ("_keys_max", "_noted")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._noted: dict[KeyT, int] = {}

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, key: KeyT, now_ms: int) -> None:
        """It happened now."""
        noted = self._noted
        noted.pop(key, None)
        if len(noted) >= self._keys_max:
            del noted[next(iter(noted))]
        noted[key] = now_ms

    def forget(self, key: KeyT) -> None:
        """It no longer counts."""
        self._noted.pop(key, None)

    def time_of(self, key: KeyT) -> int | None:
        """When it happened; None if it did not, or is forgotten."""
        return self._noted.get(key)

    def is_within(self, key: KeyT, span_ms: int, now_ms: int) -> bool:
        """Whether it happened less than `span_ms` ago."""
        noted_ms = self._noted.get(key)
        return noted_ms is not None and now_ms - noted_ms < span_ms
