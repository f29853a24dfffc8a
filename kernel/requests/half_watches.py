"""Who is asked about half messages: sinks by tenant and producer group, each in its turn."""

from __future__ import annotations

from ..api.transactions import HalfSink

Key = tuple[str, str]
"""(tenant, producer group)."""


class HalfWatches:
    """Registrations of sinks."""

    def __init__(self) -> None:
        self._sinks: dict[Key, list[HalfSink]] = {}

    @property
    def keys(self) -> list[Key]:
        """Every producer group that somebody can be asked of."""
        return list(self._sinks)

    def __contains__(self, key: Key) -> bool:
        return key in self._sinks

    def add(self, key: Key, sink: HalfSink) -> bool:
        """One more sink; whether it is the first one of its group."""
        sinks = self._sinks.setdefault(key, [])
        sinks.append(sink)
        return len(sinks) == 1

    def remove(self, key: Key, sink: HalfSink) -> bool:
        """A sink hears no more; whether it was the last one of its group."""
        sinks = self._sinks.get(key, [])
        if sink in sinks:
            sinks.remove(sink)
        if sinks or key not in self._sinks:
            return False
        del self._sinks[key]
        return True

    def next(self, key: Key) -> HalfSink | None:
        """Whose turn it is; None: there is nobody."""
        sinks = self._sinks.get(key)
        if not sinks:
            return None
        sinks.append(sinks.pop(0))
        return sinks[-1]
