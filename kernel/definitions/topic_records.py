"""Metadata records that are of one topic each, of the one that had the name when it was written:
which topics have a size (`topic_sizes`), which are traced (`topic_traces`).

    record                     -> what is known of a topic, at every process       (`TopicRecords`)
    record whose topic is gone -> removed by the leader of the home of its name    (`KeptRecords`)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

from ..api.changes import PutRecord
from ..api.model import TopicInfo
from ..common.errors import KernelError
from ..common.placement import home_group
from ..store.node import Store

VOID_MS = 60_000
"""A record whose topic is gone is removed so long after that was seen first."""

Name = tuple[str, str]
"""Tenant and name of a topic."""

_KEY_PARTS = 2


class _OfTopic(Protocol):
    @property
    def topic(self) -> int:
        """Id of the topic."""


RecordT = TypeVar("RecordT", bound=_OfTopic)


def prefix_of(kind: str, tenant: str) -> str:
    """How the keys of a tenant's topics begin; `kind`: how those of all of them do."""
    return f"{kind}{quote(tenant, safe='')}/"


def key_of(kind: str, tenant: str, name: str) -> str:
    """The metadata key of a topic's record."""
    return f"{prefix_of(kind, tenant)}{quote(name, safe='')}"


def name_of_key(kind: str, key: str) -> Name | None:
    """(tenant, name) of a key; None: it is none."""
    parts = key.removeprefix(kind).split("/")
    return (unquote(parts[0]), unquote(parts[1])) if len(parts) == _KEY_PARTS else None


class TopicRecords(Generic[RecordT]):
    """Those of one kind, as they change."""

    def __init__(self, kind: str, decode: Callable[[bytes], RecordT | None]) -> None:
        """`decode` gives None for what cannot be read: it is as good as no record."""
        self._kind = kind
        self._decode = decode
        self.known: dict[Name, tuple[int, RecordT]] = {}
        """Version and value."""

    def changed(self, key: str, record: tuple[int, bytes] | None) -> bool:
        """A metadata record has changed (version, value) or (None) was removed; whether it is one
        of these.
        """
        name = name_of_key(self._kind, key) if key.startswith(self._kind) else None
        if name is None:
            return False
        self.known.pop(name, None)
        value = self._decode(record[1]) if record is not None else None
        if record is not None and value is not None:
            self.known[name] = record[0], value
        return True


class KeptRecords(TopicRecords[RecordT]):
    """The same at a store, which removes those that are of no topic any more."""

    def __init__(
        self,
        kind: str,
        decode: Callable[[bytes], RecordT | None],
        store: Store,
        topic: Callable[[Name], TopicInfo | None],
        administer: Callable[[PutRecord], Awaitable[object]],
        now_ms: Callable[[], int],
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """`now_ms`: of a clock that only goes on."""
        super().__init__(kind, decode)
        self._store = store
        self._topic = topic
        self._administer = administer
        self._now_ms = now_ms
        self._background = background
        self._void_ms: dict[Name, int] = {}
        """Since when the topic of a record is gone."""

    def look(self) -> Iterator[tuple[Name, TopicInfo, RecordT]]:
        """Those whose home is led here, with their topics; what is void for long is removed."""
        now_ms = self._now_ms()
        for gone in self._void_ms.keys() - self.known.keys():
            del self._void_ms[gone]
        for name, (version, value) in self.known.items():
            topic = self._topic(name)
            is_void = topic is None or topic.id != value.topic
            if self._store.serving(home_group(self._store.home_groups, *name)) is None:
                self._void_ms.pop(name, None)
            elif topic is not None and not is_void:
                self._void_ms.pop(name, None)
                yield name, topic, value
            elif now_ms - self._void_ms.setdefault(name, now_ms) >= VOID_MS:
                self._void_ms[name] = now_ms
                self._background(self._remove(name, version))

    async def _remove(self, name: Name, version: int) -> None:
        try:
            await self._administer(PutRecord(key_of(self._kind, *name), None, version))
        except KernelError:
            return  # it is tried again
