"""What publishers may have of topics that have a size, as this process knows it: `Quotas` hears of
each record (`kernel.definitions.topic_sizes`). One that cannot be read bounds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.definitions.topic_sizes import PREFIX, decode, name_of_key

if TYPE_CHECKING:
    from kernel.api.client import Client
    from kernel.common.ports import Clock
    from kernel.quotas.accounts import Quotas
    from kernel.quotas.limits import SizeLimit


class SizeRecords:
    """Those of one process."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def follow(self, client: Client) -> None:
        """Take over the kernel's records, now and whenever one changes. Once, before serving."""
        found: dict[tuple[str, str], SizeLimit] = {}
        for key, record in client.records(PREFIX).items():
            name, bound = name_of_key(key), _bound(record)
            if name is not None and bound is not None:
                found[name] = bound
        self._quotas.change_sizes(found, self._clock.monotonic_ms())
        client.watch_records(self.record_changed)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed (version, value) or (None) was removed; called in the order of
        the log.
        """
        name = name_of_key(key) if key.startswith(PREFIX) else None
        if name is not None:
            self._quotas.change_sizes({name: _bound(record)}, self._clock.monotonic_ms())


def _bound(record: tuple[int, bytes] | None) -> SizeLimit | None:
    size = decode(record[1]) if record is not None else None
    return size.bound if size is not None else None
