"""The tenants there are, as this process knows them: those of the settings, and what was made,
changed and removed at run time (`tenant_records`), which takes the place of what the settings say
of the same one.

Whoever wants to know of tenants asks this: adapters their own word for one, sign-in whether anybody
of it is let in, the admin API which there are, stores whether it may have new topics.

    HERE ──── remove ───> LEAVING ─── nothing is left ───> GONE ── made again ──> HERE
      └─ sign_in on, off

Users of a tenant that is not in the book sign in all the same: its row was taken out of the
settings, and deletes nothing (docs/tenants.md).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from auth.principal import DEFAULT_TENANT
from gateway.access.tenant_records import KEY, TenantRecord, TenantState, decode, encode
from gateway.config.schema import Tenant
from gateway.config.tenants import TENANTS_MAX, known_as, tenant_findings, words_in
from kernel.api.client import PutRecord
from kernel.common.errors import Code, KernelError
from kernel.quotas.limits import LimitSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from adapters.base import Declaration
    from kernel.api.client import Client
    from kernel.common.ports import Clock
    from kernel.in_process.local_client import LocalClient
    from kernel.quotas.accounts import Quotas

REMOVED_MAX: Final = 1_000
"""Names of tenants that are gone, which the record keeps until their bill is told: beyond it no
more are removed in a month."""

NOTHING_NEW: Final = LimitSet(topics=0, groups=0)
"""What a tenant may have that is being removed, or is gone."""

Records = dict[str, TenantRecord]

_log = structlog.get_logger("weir.tenants")


class TenantBook:
    """Of one process. Belongs to its event loop."""

    def __init__(
        self,
        seeds: Mapping[str, Tenant],
        declared: Mapping[str, Declaration],
        clock: Clock,
    ) -> None:
        """`seeds`: the tenants that the settings name."""
        self.seeds = seeds
        self.records: Records = {}
        """What was said at run time."""
        self.barred: frozenset[str] = frozenset()
        """Tenants of which nobody signs in."""
        self.closed: frozenset[str] = frozenset()
        """Those that are being removed, or are gone."""
        self.watchers: list[Callable[[TenantBook], None]] = []
        """Called after every change."""
        self._declared = declared
        self._clock = clock
        self._words = words_in(declared)
        self._names: dict[str, dict[str, str]] = {each: {} for each in self._words}
        self._owners: dict[str, dict[str, str]] = {each: {} for each in self._words}
        self._version = 0
        self._damage = ""
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._look()

    # --- What it says -----------------------------------------------------------------------

    def tenants(self) -> dict[str, Tenant]:
        """Those that are here, and those that are being removed, with their names."""
        made = {
            name: Tenant(known_as=dict(each.known_as))
            for name, each in self.records.items()
            if each.state is not TenantState.GONE
        }
        seeds = {name: each for name, each in self.seeds.items() if name not in self.records}
        return {**seeds, **made}

    def state(self, name: str) -> TenantState | None:
        """Where a tenant is in its life; None: there is none of that name."""
        record = self.records.get(name)
        if record is not None:
            return record.state
        return TenantState.HERE if name in self.seeds else None

    def has(self, name: str) -> bool:
        """Whether a tenant is here, or is being removed."""
        return self.state(name) in {TenantState.HERE, TenantState.LEAVING}

    def leaving(self) -> list[str]:
        """Tenants that are being removed."""
        found = self.records.items()
        return [name for name, each in found if each.state is TenantState.LEAVING]

    def names_in(self, protocol: str) -> Mapping[str, str]:
        """What a protocol calls each tenant, by tenant: always as it is now."""
        return self._names.get(protocol, {})

    def owners_in(self, protocol: str) -> Mapping[str, str]:
        """The tenant of each name in a protocol: always as it is now."""
        return self._owners.get(protocol, {})

    def limits_under(self, quotas: Quotas) -> Callable[[str], LimitSet]:
        """The limits of a tenant; of one that is being removed: nothing new."""

        def of(tenant: str) -> LimitSet:
            return NOTHING_NEW if tenant in self.closed else quotas.of_tenant(tenant)

        return of

    # --- Following --------------------------------------------------------------------------

    def follow(self, client: Client) -> None:
        """Take over the kernel's record, now and whenever it changes. Once, before serving."""
        self._client = client
        found = client.records(KEY).get(KEY)
        if found is not None:
            self.record_changed(KEY, found)
        client.watch_records(self.record_changed)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed (version, value) or (None) was removed; called in the order of
        the log. Of one that is damaged what was known before holds.
        """
        if key != KEY:
            return
        version, value = record or (0, encode({}))
        try:
            self.records = decode(value)
        except ValueError as error:
            self._damage = str(error)
            _log.error("tenants left out", key=key, reason=self._damage)
            return
        self._version, self._damage = version, ""
        self._look()

    def _look(self) -> None:
        """Work out what others ask for."""
        tenants = self.tenants()
        for protocol in self._words:
            names = {name: known_as(name, each, protocol) for name, each in tenants.items()}
            # In place: adapters hold these.
            held, owners = self._names[protocol], self._owners[protocol]
            held.clear()
            held.update(names)
            owners.clear()
            owners.update({shown: name for name, shown in names.items()})
        found = self.records.items()
        self.closed = frozenset(n for n, each in found if each.state is not TenantState.HERE)
        self.barred = self.closed | {name for name, each in found if not each.sign_in}
        for watcher in self.watchers:
            watcher(self)

    # --- Changing ---------------------------------------------------------------------------

    async def add(
        self, name: str, names: Mapping[str, str], by: str, *, sign_in: bool, same_customer: bool
    ) -> TenantRecord:
        """Make a tenant. One that was removed in this month is made again only for the
        `same_customer`, whose bill then has both. Raises KernelError: ALREADY_EXISTS, IN_USE (its
        name), INVALID_ARGUMENT, LIMIT_EXCEEDED.
        """
        now_ms = self._clock.wall_ms()
        made = TenantRecord(known_as=dict(names), sign_in=sign_in, changed_ms=now_ms)

        def change(_records: Records) -> TenantRecord:
            self.check_new(name, names, same_customer=same_customer)
            return made

        await self._change(name, change)
        _log.info("tenant made", by=by, tenant=name, known_as=dict(names))
        return made

    def check_new(self, name: str, names: Mapping[str, str], *, same_customer: bool) -> None:
        """Raise what `add` would, as far as it is known here."""
        state = self.state(name)
        if state is TenantState.HERE:
            raise KernelError(Code.ALREADY_EXISTS, f"there is a tenant {name} already")
        if state is TenantState.LEAVING:
            raise KernelError(Code.IN_USE, _being_removed(name))
        if state is TenantState.GONE and not same_customer:
            self._check_told(name, self.records[name])
        self.check_names(name, names)

    async def alter(
        self, name: str, names: Mapping[str, str | None], by: str, sign_in: bool | None = None
    ) -> TenantRecord:
        """Set (None: its own) names by protocol, and whether anybody signs in; what is left out
        stays. Raises KernelError: NOT_FOUND, IN_USE (it is being removed), INVALID_ARGUMENT.
        """

        def change(_records: Records) -> TenantRecord:
            known = self._here(name)
            wanted = {**known.known_as, **names}
            told = {protocol: shown for protocol, shown in wanted.items() if shown is not None}
            self.check_names(name, told)
            return replace(
                known,
                known_as=told,
                sign_in=known.sign_in if sign_in is None else sign_in,
            )

        altered = await self._change(name, change)
        _log.info(
            "tenant changed",
            by=by,
            tenant=name,
            known_as=altered.known_as,
            sign_in=altered.sign_in,
        )
        return altered

    async def remove(self, name: str, by: str) -> None:
        """Begin to remove a tenant, with all that it has. Again: nothing. Raises KernelError:
        NOT_FOUND, INVALID_ARGUMENT (it is built in), LIMIT_EXCEEDED.
        """
        if name == DEFAULT_TENANT:
            raise KernelError(Code.INVALID_ARGUMENT, f"the tenant {name} is built in, and stays")
        if self.state(name) is TenantState.LEAVING:
            return

        def change(records: Records) -> TenantRecord:
            self._forget_told(records)
            gone = sum(each.state is not TenantState.HERE for each in records.values())
            if gone >= REMOVED_MAX:
                message = f"{REMOVED_MAX} tenants were removed in this month"
                raise KernelError(Code.LIMIT_EXCEEDED, message)
            return replace(
                self._here(name), state=TenantState.LEAVING, changed_ms=self._clock.wall_ms()
            )

        await self._change(name, change)
        _log.info("tenant removed", by=by, tenant=name)

    async def beat(self, name: str, worker: str) -> None:
        """Say that a process removes a tenant, and that it is there. Raises KernelError."""

        def change(records: Records) -> TenantRecord:
            known = self._leaving(name, records)
            return replace(known, worker=worker, beat=known.beat + 1)

        await self._change(name, change)

    async def gone(self, name: str, worker: str) -> None:
        """Nothing of a tenant that `worker` removes is left. Raises KernelError."""

        def change(records: Records) -> TenantRecord:
            known = self._leaving(name, records)
            if known.worker != worker:
                raise KernelError(Code.ALREADY_EXISTS, "another process removes it")
            return TenantRecord(state=TenantState.GONE, changed_ms=self._clock.wall_ms())

        await self._change(name, change)
        _log.info("tenant gone", tenant=name)

    async def _change(self, name: str, change: Callable[[Records], TenantRecord]) -> TenantRecord:
        assert self._client is not None, "nobody is served before records are followed"
        async with self._lock:
            if self._damage:
                message = f"the record of tenants is damaged: {self._damage}"
                raise KernelError(Code.UNAVAILABLE, message)
            records = dict(self.records)
            record = change(records)
            if records.get(name) == record:
                return record
            records[name] = record
            try:
                await self._client.administer(PutRecord(KEY, encode(records), self._version))
            except KernelError as error:
                if error.code is not Code.ALREADY_EXISTS:
                    raise
                message = "tenants were changed by somebody else meanwhile: try again"
                raise KernelError(error.code, message) from error
            return record

    def _here(self, name: str) -> TenantRecord:
        state, record = self.state(name), self.records.get(name)
        if state is TenantState.LEAVING:
            raise KernelError(Code.IN_USE, _being_removed(name))
        if state is not TenantState.HERE:
            raise KernelError(Code.NOT_FOUND, f"there is no tenant {name}")
        return record or TenantRecord(known_as=dict(self.seeds[name].known_as))

    @staticmethod
    def _leaving(name: str, records: Records) -> TenantRecord:
        known = records.get(name)
        if known is None or known.state is not TenantState.LEAVING:
            raise KernelError(Code.NOT_FOUND, f"the tenant {name} is not being removed")
        return known

    def check_names(self, name: str, names: Mapping[str, str]) -> None:
        if name == DEFAULT_TENANT:
            message = f"the tenant {name} is built in: its names are fixed"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        tenants = {**self.tenants(), name: Tenant(known_as=dict(names))}
        if len(tenants) > TENANTS_MAX:
            raise KernelError(Code.LIMIT_EXCEEDED, f"there are {TENANTS_MAX} tenants, the most")
        _raise_first(fault for _, fault in tenant_findings(tenants, self._declared, ()))

    def _check_told(self, name: str, record: TenantRecord) -> None:
        """Raise KernelError IN_USE if the bill of a tenant that is gone is not told yet."""
        if self.is_told(record):
            return
        raise KernelError(
            Code.IN_USE,
            f"a tenant {name} was removed in {_month(record.changed_ms)}, and is on the bill of "
            "that month: its name is free from the next one on, or now for the same customer "
            "(`same_customer`), whose bill has both",
        )

    def is_told(self, record: TenantRecord) -> bool:
        """Whether the month in which a tenant has gone is over."""
        return _month(record.changed_ms) != _month(self._clock.wall_ms())

    def _forget_told(self, records: Records) -> None:
        """Forget names that are free again, but for those that the settings would bring back."""
        for name, each in list(records.items()):
            is_gone = each.state is TenantState.GONE
            if is_gone and name not in self.seeds and self.is_told(each):
                del records[name]


def limit_tenants(client: LocalClient, quotas: Quotas, book: TenantBook) -> None:
    """Have a store decide by the tenants that there are: what each may have, and how many share the
    disk.
    """

    def share(changed: TenantBook) -> None:
        client.limit_stored(quotas, len(changed.tenants()))

    client.limit_definitions(book.limits_under(quotas))
    share(book)
    book.watchers.append(share)


def _raise_first(faults: Iterable[str]) -> None:
    """Tenants that stand are without fault, so that the first is that of what is new."""
    for fault in faults:
        raise KernelError(Code.INVALID_ARGUMENT, fault)


def _month(wall_ms: int) -> str:
    """The bill's month (UTC) of a time."""
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m")


def _being_removed(name: str) -> str:
    return f"the tenant {name} is being removed"
