"""Who may sign in: users, keys and policies of the kernel's metadata records, joined with `auth`.

    auth/policy/TENANT/NAME    auth/user/TENANT/NAME    auth/key/KEY_ID        (the record's key)
    MessagePack of an `auth.users.records` record                                    (its value)

A name is percent-encoded in a key, so that a slash in it parts nothing. The `AuthStore` is this
process's copy: filled at start, then changed only by what the kernel has committed, in its order,
so that a record's `version` there is the kernel's. What the records of a damaged or newer store
refer to but do not hold is left out and logged: a user whose policy is missing has no rights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import structlog

from auth.errors import AuthCode, AuthError
from auth.password_checks.passwords import PasswordChecker
from auth.policies.policy_decisions import Access, PolicyBook
from auth.policies.policy_rules import Policy
from auth.principal import split_login
from auth.users.directory import Directory
from auth.users.records import (
    AccessKey,
    Change,
    Create,
    Record,
    RemoveAccessKey,
    RemovePolicy,
    RemoveUser,
    User,
)
from auth.users.store import AuthStore
from gateway.access.renewed_hashes import RenewedHashes
from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from auth.password_checks.passwords import CheckStatistics
    from auth.users.development import Development
    from gateway.access.tenant_book import TenantBook
    from kernel.api.client import Client
    from kernel.common.ports import Clock

PREFIX = "auth/"
"""Of every record of ours among the kernel's metadata records."""

_KINDS: dict[type[Record], str] = {Policy: "policy", User: "user", AccessKey: "key"}
"""Record type to the word in its key, in the order in which records refer to earlier ones."""

_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)

_log = structlog.get_logger("weir.identity")


def key_of(record: Record) -> str:
    """The metadata key of a record."""
    kind = _KINDS[type(record)]
    if isinstance(record, AccessKey):
        return f"{PREFIX}{kind}/{_spell(record.key_id)}"
    return f"{PREFIX}{kind}/{_spell(record.tenant)}/{_spell(record.name)}"


def encode_record(record: Record) -> bytes:
    """The value of a record. The version in it is not read: the kernel's holds."""
    return msgspec.msgpack.encode(record)


def decode_record(key: str, value: bytes) -> Record:
    """Inverse of encode_record. Raises AuthError DAMAGED if `value` is no record of `key`."""
    try:
        record = _DECODER.decode(value)
    except UNDECODABLE as error:
        raise AuthError(AuthCode.DAMAGED, f"{key} holds no record: {error}") from None
    if key_of(record) != key:
        raise AuthError(AuthCode.DAMAGED, f"{key} holds the record of {key_of(record)}")
    return record


def _spell(name: str) -> str:
    return quote(name, safe="")


class UserRecords:
    """Users, keys and policies as this process knows them."""

    def __init__(
        self, unseal: Callable[[bytes, bytes], bytes], development: Development | None = None
    ) -> None:
        self.store = AuthStore()
        self.directory = Directory(self.store, unseal, development)
        self.policies = PolicyBook(self.directory)
        self._known: dict[str, Record] = {}
        """Key to its record: a removal names the key alone."""

    def follow(self, client: Client) -> None:
        """Take over the kernel's records, now and whenever one changes. Once, before serving."""
        self.load(client.records(PREFIX))
        client.watch_records(self.record_changed)

    def bar(self, book: TenantBook) -> None:
        """Let nobody in, and nobody stay, whose tenant is barred, now and later."""
        self.directory.bar(book.barred)
        book.watchers.append(lambda changed: self.directory.bar(changed.barred))

    def load(self, records: Mapping[str, tuple[int, bytes]]) -> None:
        """Replace the store by the kernel's (version, value) by key."""
        decoded = list(self._decoded(records))
        self._known = {key_of(record): record for record in decoded}
        self.store.restore(_whole(decoded))

    def _decoded(self, records: Mapping[str, tuple[int, bytes]]) -> Iterator[Record]:
        for key, (version, value) in records.items():
            try:
                record = decode_record(key, value)
            except AuthError as error:
                _log.error("auth record left out", key=key, reason=error.message)
                continue
            yield msgspec.structs.replace(record, version=version)

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record changed, to (version, value), or (None) was removed."""
        if not key.startswith(PREFIX):
            return
        try:
            refusal = self._apply(key, record)
        except AuthError as error:
            refusal = error
        if refusal is not None:
            _log.error("auth record not applied", key=key, reason=refusal.message)

    def _apply(self, key: str, changed: tuple[int, bytes] | None) -> AuthError | None:
        known = self._known.get(key)
        if changed is None:
            if known is None:
                return None
            del self._known[key]
            return self.store.apply(_removal(known))
        version, value = changed
        record = msgspec.structs.replace(decode_record(key, value), version=version)
        self._known[key] = record
        return self.store.follow(record)


class Identity(UserRecords):
    """`adapters.base.SignIn` for every adapter of this process."""

    def __init__(
        self,
        unseal: Callable[[bytes, bytes], bytes],
        development: Development | None,
        clock: Clock,
    ) -> None:
        super().__init__(unseal, development)
        self._passwords = PasswordChecker(self.directory.password_hash, clock.monotonic_ms)
        self._renewed = RenewedHashes(self.store, key_of, encode_record)

    def follow(self, client: Client) -> None:
        """As `UserRecords.follow`; and write there the hashes that are replaced."""
        super().follow(client)
        self._renewed.follow(client)

    async def sign_in(
        self, login: str, password: bytes, address: str, client_id: str | None = None
    ) -> Access:
        """Check a password (see `adapters.base.SignIn`). `address` is for the operator's log;
        `client_id` is what `${clientid}` stands for in policies.
        """
        tenant, name = split_login(login)
        if not await self._passwords.check(tenant, name, password, address):
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {address}")
        principal = self.directory.principal(tenant, name)
        if principal is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {address}")
        self._renewed.signed_in(tenant, name, password)
        sign_out = self.directory.sign_out_of(principal)
        return self.policies.access(principal, client_id, sign_out)

    def statistics(self) -> CheckStatistics:
        """Figures of the password checks."""
        return self._passwords.statistics()

    def without_password(self, login: str, address: str, client_id: str | None = None) -> Access:
        """The rights of a user whose password nobody asks for: of clients that an operator lets in
        without one. Raises AuthError BAD_CREDENTIALS.
        """
        principal = self.directory.principal(*split_login(login))
        if principal is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"{login}, whom {address} would be, is none")
        return self.policies.access(principal, client_id)

    async def close(self) -> None:
        """End the password checks, and what comes of them."""
        await self._passwords.close()
        await self._renewed.close()


def _removal(record: Record) -> Change:
    if isinstance(record, User):
        return RemoveUser(record.tenant, record.name)
    if isinstance(record, AccessKey):
        return RemoveAccessKey(record.key_id)
    return RemovePolicy(record.tenant, record.name)


def _whole(records: Iterable[Record]) -> list[Record]:
    """Records in the order `AuthStore.restore` takes, without those that it would refuse."""
    kinds = list(_KINDS)
    rehearsal = AuthStore()
    kept = []
    for record in sorted(records, key=lambda each: (kinds.index(type(each)), key_of(each))):
        refusal = rehearsal.apply(Create(record))
        if refusal is None:
            kept.append(record)
        else:
            _log.error("auth record left out", key=key_of(record), reason=refusal.message)
    return kept
