"""The users of a node: what it makes of the kernel's records, whatever stands in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.errors import AuthCode, AuthError
from auth.policies.policy_rules import Policy, parse_rule
from auth.users.records import AccessKey, Create, Record, User
from auth.users.store import AuthStore
from gateway.access import renewed_hashes
from gateway.access.identity import Identity, decode_record, encode_record, key_of
from gateway.admin.resources.principals import Principals
from kernel.api.client import RecordAction
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.client import PutRecord

RULES = (parse_rule("allow * *"),)
POLICY = Policy(tenant="default", name="p", rules=RULES)
USER = User(tenant="default", name="u", policies=("p",))
KEY = AccessKey(key_id="K", tenant="default", user="u", sealed_secret=b"sealed")


class Clock:
    def wall_ms(self) -> int:
        return 7

    def monotonic_ms(self) -> int:
        return 7


class Random:
    def __init__(self) -> None:
        self.last = 0

    def bits(self, count: int) -> int:
        self.last += 1
        return self.last


class Keys:
    def seal(self, secret: bytes, context: bytes) -> bytes:
        return context + secret


class Kernel:
    """Metadata records as the kernel keeps them, with a hook between a check and the write."""

    def __init__(self, *records: Record) -> None:
        self.held = {key_of(each): (1, encode_record(each)) for each in records}
        self.watchers: list[RecordAction] = []
        self.before: Callable[[], None] = lambda: None

    def records(self, prefix: str) -> dict[str, tuple[int, bytes]]:
        return {key: each for key, each in self.held.items() if key.startswith(prefix)}

    def watch_records(self, action: RecordAction) -> None:
        self.watchers.append(action)

    def put(self, key: str, value: bytes | None) -> int:
        version = self.held.get(key, (0, b""))[0] + 1
        if value is None:
            self.held.pop(key, None)
        else:
            self.held[key] = (version, value)
        for watcher in self.watchers:
            watcher(key, self.held.get(key))
        return version

    async def administer(self, change: PutRecord) -> int:
        self.before()
        if change.expected not in {None, self.held.get(change.key, (0, b""))[0]}:
            raise KernelError(Code.ALREADY_EXISTS, "another version")
        return self.put(change.key, change.value)


@pytest.fixture
async def open_identity():
    opened = []

    def one(kernel: Kernel) -> Identity:
        identity = Identity(lambda envelope, context: envelope, None, Clock())
        identity.follow(kernel)
        opened.append(identity)
        return identity

    yield one
    for identity in opened:
        await identity.close()


@pytest.mark.parametrize(
    "record",
    [
        POLICY,
        USER,
        KEY,
        User(tenant="a/b", name="c/d%2F"),
        User(tenant="default", name="größe"),
    ],
)
def test_a_record_is_read_back_under_its_key(record: Record) -> None:
    assert decode_record(key_of(record), encode_record(record)) == record


def test_keys_of_different_records_differ() -> None:
    one, other = User(tenant="a", name="b/c"), User(tenant="a/b", name="c")
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x80", encode_record(KEY)])
def test_what_is_no_record_of_its_key_is_damaged(value: bytes) -> None:
    with pytest.raises(AuthError) as raised:
        decode_record(key_of(USER), value)
    assert raised.value.code is AuthCode.DAMAGED


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_give_the_designed_error(value: bytes) -> None:
    with pytest.raises(AuthError) as raised:
        decode_record(key_of(USER), value)
    assert raised.value.code is AuthCode.DAMAGED


@given(st.data())
def test_a_mutated_record_is_damaged_or_refused_or_taken_but_never_raises(
    data: st.DataObject,
) -> None:
    record = data.draw(st.sampled_from([USER, KEY, POLICY]))
    value = bytearray(encode_record(record))
    position = data.draw(st.integers(0, len(value) - 1))
    value[position] = data.draw(st.integers(0, 255))
    try:
        mutated = decode_record(key_of(record), bytes(value))
    except AuthError:
        return
    store = AuthStore()
    for each in (POLICY, USER):
        store.apply(Create(each))
    before = list(store.records())
    if store.apply(Create(mutated)) is not None:
        assert list(store.records()) == before


async def test_versions_are_the_kernels(open_identity) -> None:
    kernel = Kernel(KEY, USER, POLICY)
    kernel.put(key_of(USER), encode_record(USER))
    identity = open_identity(kernel)
    assert identity.store.user("default", "u").version == 2
    kernel.put(key_of(USER), encode_record(USER))
    assert identity.store.user("default", "u").version == 3
    assert identity.store.access_key("K") is not None


async def test_a_damaged_or_dangling_record_leaves_the_others(open_identity) -> None:
    stranger = User(tenant="default", name="x", policies=("gone",))
    orphan = AccessKey(key_id="O", tenant="default", user="nobody", sealed_secret=b"s")
    kernel = Kernel(POLICY, USER, stranger, orphan)
    kernel.held["auth/user/default/y"] = (1, b"\xc1")
    kernel.held["auth/other/z"] = (1, b"")
    identity = open_identity(kernel)
    assert [user.name for user in identity.store.users("default")] == ["u"]
    assert identity.store.access_key("O") is None


async def test_changes_of_others_are_followed(open_identity) -> None:
    kernel = Kernel()
    identity = open_identity(kernel)
    kernel.put("other/key", b"not ours")
    kernel.put(key_of(POLICY), encode_record(POLICY))
    kernel.put(key_of(USER), encode_record(USER))
    kernel.put(key_of(KEY), encode_record(KEY))
    assert identity.directory.access_key("K") is not None
    kernel.put(key_of(USER), b"\xc1")
    assert identity.store.user("default", "u").version == 1
    kernel.put(key_of(KEY), None)
    kernel.put(key_of(KEY), None)
    kernel.put(key_of(USER), None)
    kernel.put(key_of(POLICY), None)
    assert (identity.store.user_count(), identity.store.access_key("K")) == (0, None)


async def test_a_removed_right_ends_at_once(open_identity) -> None:
    kernel = Kernel(POLICY, USER)
    identity = open_identity(kernel)
    access = identity.policies.access(identity.directory.principal("default", "u"))
    assert access.is_alive()
    kernel.put(key_of(USER), None)
    assert not access.is_alive()


async def test_a_change_by_another_node_between_check_and_write_is_a_conflict(
    open_identity,
) -> None:
    kernel = Kernel(POLICY, USER)
    identity = open_identity(kernel)
    principals = Principals(kernel, identity.store, Keys(), Clock(), Random())

    def meanwhile() -> None:
        kernel.before = lambda: None
        kernel.put(key_of(USER), encode_record(USER))

    kernel.before = meanwhile
    with pytest.raises(AuthError) as raised:
        await principals.alter_user("default", "u", enabled=False)
    assert raised.value.code is AuthCode.CONFLICT
    assert (await principals.alter_user("default", "u", enabled=False)).version == 3


async def test_the_first_administrator_comes_only_to_an_empty_store(open_identity) -> None:
    kernel = Kernel()
    identity = open_identity(kernel)
    principals = Principals(kernel, identity.store, Keys(), Clock(), Random())
    assert await principals.first_administrator({}) is None
    password = {"WEIR_ADMIN_PASSWORD": "long enough"}
    first = await principals.first_administrator(password)
    assert (first.name, first.version) == ("admin", 1)
    assert await principals.first_administrator(password) is None
    access = await identity.sign_in("admin", b"long enough", "here")
    assert access.is_alive()
    with pytest.raises(AuthError):
        await identity.sign_in("admin", b"something else", "here")


# --- Hashes of another broker -----------------------------------------------------------------

FOREIGN = "$rabbitmq-sha256$kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""RabbitMQ's, of `test12`."""


async def renewed(identity: Identity) -> str:
    """The stored hash of USER once nothing is being renewed any more."""
    while identity._renewed._task is not None:
        await asyncio.sleep(0.01)
    user = identity.store.user("default", "u")
    assert user is not None
    return user.password_hash


async def test_a_hash_of_rabbitmq_signs_in_and_is_replaced_by_one_of_our_own(
    open_identity,
) -> None:
    foreign = msgspec.structs.replace(USER, password_hash=FOREIGN)
    kernel = Kernel(POLICY, foreign)
    identity = open_identity(kernel)
    with pytest.raises(AuthError):
        await identity.sign_in("u", b"test13", "here")
    assert await renewed(identity) == FOREIGN, "a wrong password replaces nothing"
    access = await identity.sign_in("u", b"test12", "here")
    assert (await renewed(identity)).startswith("$argon2id$")
    assert access.is_alive(), "whoever is connected stays so"
    assert (await identity.sign_in("u", b"test12", "here")).is_alive()
    with pytest.raises(AuthError):
        await identity.sign_in("u", b"test13", "here")


async def test_a_password_that_is_changed_meanwhile_is_not_put_back(open_identity) -> None:
    kernel = Kernel(POLICY, msgspec.structs.replace(USER, password_hash=FOREIGN))
    identity = open_identity(kernel)
    changed = msgspec.structs.replace(USER, password_hash="")

    def meanwhile() -> None:
        kernel.before = lambda: None
        kernel.put(key_of(changed), encode_record(changed))

    kernel.before = meanwhile
    await identity.sign_in("u", b"test12", "here")
    assert await renewed(identity) == ""


async def test_who_is_too_many_at_a_time_is_renewed_at_the_next_sign_in(
    open_identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed_hashes, "PENDING_MAX", 0)
    identity = open_identity(Kernel(POLICY, msgspec.structs.replace(USER, password_hash=FOREIGN)))
    await identity.sign_in("u", b"test12", "here")
    assert await renewed(identity) == FOREIGN
    monkeypatch.undo()
    await identity.sign_in("u", b"test12", "here")
    assert (await renewed(identity)).startswith("$argon2id$")
