"""The record of tenants that were made, changed or removed at run time: one metadata record of
group 0 for all of them.

    tenants                          (the record's key)
    MessagePack of `TenantRecord` by name        (its value)

One record, because no two tenants may have the same name in a protocol: whoever changes one has
read all, and is refused if another gateway has changed any meanwhile. They are few (`TENANTS_MAX`,
and `REMOVED_MAX` that are gone): some 100 KB at most. It is written only with the feature `tenants`
of the log on (ADR 26): gateways of builds before would go on serving a tenant that is removed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "tenants"


class TenantState(Enum):
    """Where a tenant is in its life (ADR 33)."""

    HERE = "here"
    LEAVING = "leaving"
    """It is being removed: nobody signs in, and what it has goes."""
    GONE = "gone"
    """Nothing of it is left but its name, which stays unused until its bill is told."""


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tenant. What it says takes the place of the settings' row of that name."""

    state: TenantState = TenantState.HERE
    known_as: dict[str, str] = {}
    """Its name by protocol, where that is not its own."""
    sign_in: bool = True
    """False: nobody signs in, and whoever is connected is sent away; what it has stays."""
    changed_ms: int = 0
    """Wall time at which its state became what it is."""
    worker: str = ""
    """The process that removes it."""
    beat: int = 0
    """Raised by the worker, so that others see that it is there."""


_decoder = msgspec.msgpack.Decoder(dict[str, TenantRecord])


def encode(records: Mapping[str, TenantRecord]) -> bytes:
    """The value of the record."""
    return msgspec.msgpack.encode(dict(records))


def decode(value: bytes) -> dict[str, TenantRecord]:
    """Inverse of `encode`. Raises ValueError for what is no such value."""
    try:
        return _decoder.decode(value)
    except UNDECODABLE as error:
        raise ValueError(str(error)) from None
