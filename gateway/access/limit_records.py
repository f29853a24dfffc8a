"""Limits as this process knows them: those of the settings, and those that were set at run time,
which are metadata records of the kernel, and take the place of what the settings say of the same
one.

    limits/SCOPE/TENANT/NAME      (the record's key; each part percent-encoded)
    MessagePack of limit by kind  (its value: `{"published_messages": 1000}`)

A record without any limit lifts those of the settings. One that is damaged, or has a kind that this
build does not know, is left out as far as that goes, and logged: the others hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import msgspec
import structlog

from kernel.api.client import PutRecord
from kernel.common.errors import UNDECODABLE, Code, KernelError
from kernel.quotas.limits import KINDS, LIMIT_MAX, Entity, LimitSet, settable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.client import Client
    from kernel.common.ports import Clock
    from kernel.quotas.accounts import Quotas

PREFIX: Final = "limits/"

LIMITS_MAX: Final = 10_000
"""Set at run time: more than anybody sets one by one, some MB in every process."""

_KEY_PARTS: Final = 3

_log = structlog.get_logger("weir.limits")


def key_of(entity: Entity) -> str:
    """The metadata key of a limit's record."""
    parts = (quote(each, safe="") for each in (entity.scope.value, entity.tenant, entity.name))
    return PREFIX + "/".join(parts)


def encode(rates: LimitSet) -> bytes:
    """The value of a record."""
    return msgspec.msgpack.encode(rates.named())


def decode(key: str, value: bytes) -> tuple[Entity, LimitSet, list[str]]:
    """Inverse of `key_of` and `encode`, and what of it means nothing here. Raises ValueError."""
    parts = key.removeprefix(PREFIX).split("/")
    if len(parts) != _KEY_PARTS:
        raise ValueError("no such key")
    entity = Entity(settable(parts[0]), *(unquote(part, errors="strict") for part in parts[1:]))
    try:
        told = msgspec.msgpack.decode(value, type=dict[str, int])
    except UNDECODABLE as error:
        raise ValueError(str(error)) from None
    known = {kind.value for kind in KINDS[entity.scope]}
    sound = {each: told[each] for each in told.keys() & known if 1 <= told[each] <= LIMIT_MAX}
    return entity, LimitSet(**sound), sorted(told.keys() - sound.keys())


class LimitRecords:
    """The limits of a process; it tells `Quotas` of every change."""

    def __init__(self, seeds: Mapping[Entity, LimitSet], quotas: Quotas, clock: Clock) -> None:
        """`seeds`: what the settings say."""
        self.seeds = seeds
        self.records: dict[Entity, LimitSet] = {}
        """What was set at run time."""
        self._versions: dict[str, int] = {}
        """Of the records by key, the damaged ones too: those can be set anew."""
        self._quotas = quotas
        self._clock = clock
        self._client: Client | None = None
        self._lock = asyncio.Lock()

    def follow(self, client: Client) -> None:
        """Take over the kernel's records, now and whenever one changes. Once, before serving."""
        self._client = client
        for key, record in client.records(PREFIX).items():
            self._take(key, record)
        self._tell()
        client.watch_records(self.record_changed)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed (version, value) or (None) was removed; called in the order of
        the log.
        """
        if key.startswith(PREFIX):
            self._take(key, record)
            self._tell()

    def _take(self, key: str, record: tuple[int, bytes] | None) -> None:
        version, value = record or (0, encode(LimitSet()))
        self._versions[key] = version
        try:
            entity, rates, unknown = decode(key, value)
        except ValueError as error:
            _log.error("limit left out", key=key, reason=str(error))
            return
        if unknown:
            _log.warning("limits of unknown kinds left out", key=key, kinds=unknown)
        if record is None:
            self.records.pop(entity, None)
            del self._versions[key]
        else:
            self.records[entity] = rates

    def _tell(self) -> None:
        self._quotas.change({**self.seeds, **self.records}, self._clock.monotonic_ms())

    # --- Changing ---------------------------------------------------------------------------

    async def alter(self, entity: Entity, changes: Mapping[str, int | None], by: str) -> LimitSet:
        """Set (None: lift) limits by name; the others stay. Who does it is logged. Raises
        KernelError: INVALID_ARGUMENT, LIMIT_EXCEEDED, ALREADY_EXISTS (somebody else has altered
        them meanwhile).
        """
        known = [kind.value for kind in KINDS[entity.scope]]
        for name, limit in changes.items():
            if name not in known:
                message = f"{name} is no limit of a {entity.scope.value}: those are "
                raise KernelError(Code.INVALID_ARGUMENT, message + ", ".join(known))
            if limit is not None and not 1 <= limit <= LIMIT_MAX:
                message = f"{name} must be 1 to {LIMIT_MAX}, or null: no limit"
                raise KernelError(Code.INVALID_ARGUMENT, message)
        async with self._lock:
            now = self.records.get(entity) or self.seeds.get(entity) or LimitSet()
            named: dict[str, int | None] = {**now.named(), **changes}
            rates = LimitSet(**named)
            if entity not in self.records and len(self.records) >= LIMITS_MAX:
                message = f"{LIMITS_MAX} limits are set already"
                raise KernelError(Code.LIMIT_EXCEEDED, message)
            await self._write(entity, encode(rates))
        _log.info("limit set", by=by, **_shown(entity), limits=rates.named())
        return rates

    async def remove(self, entity: Entity, by: str) -> None:
        """What was set at run time holds no longer: what the settings say does. Raises KernelError
        NOT_FOUND, ALREADY_EXISTS.
        """
        async with self._lock:
            if entity not in self.records:
                where = ": it stands in the settings" if entity in self.seeds else ""
                message = f"no limit of {spell(entity)} was set at run time{where}"
                raise KernelError(Code.NOT_FOUND, message)
            await self._write(entity, None)
        _log.info("limit removed", by=by, **_shown(entity))

    async def _write(self, entity: Entity, value: bytes | None) -> None:
        assert self._client is not None, "nobody is served before records are followed"
        key = key_of(entity)
        try:
            await self._client.administer(PutRecord(key, value, self._versions.get(key, 0)))
        except KernelError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            message = f"the limits of {spell(entity)} were altered meanwhile: try again"
            raise KernelError(error.code, message) from error


def spell(entity: Entity) -> str:
    """For people."""
    name = f"{entity.tenant}:{entity.name}" if entity.tenant and entity.name else entity.tenant
    return f"{entity.scope.value} {name or entity.name}"


def _shown(entity: Entity) -> dict[str, str]:
    return {"scope": entity.scope.value, "tenant": entity.tenant, "name": entity.name}
