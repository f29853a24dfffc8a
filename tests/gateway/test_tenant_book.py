"""The book of tenants at several gateways at once; a tenant's removal, wherever it is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from auth.errors import AuthError
from auth.policies.policy_rules import Policy, parse_rule
from auth.users.records import AccessKey, User
from gateway.access import tenant_book, tenant_records
from gateway.access.identity import Identity
from gateway.access.limit_records import LimitRecords
from gateway.access.tenant_book import NOTHING_NEW, TenantBook
from gateway.access.tenant_records import KEY, TenantRecord, TenantState
from gateway.access.tenant_removal import BEAT_MS, SETTLE_MS, TAKE_OVER_MS, TenantRemoval
from gateway.admin.resources.principals import Principals
from gateway.config.declared import declared_in
from gateway.config.loading import load
from gateway.config.schema import Tenant
from kernel.api.client import DeleteRouter, DeleteTopic, PutRecord
from kernel.common.errors import Code, KernelError
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import Entity, Scope
from tests.gateway.test_identity import Kernel, Keys, Random

if TYPE_CHECKING:
    from kernel.api.client import Client

DECLARED = declared_in(load(environ={}).settings.protocols)
SEEDS = {"default": Tenant(known_as={"amqp": "/", "sqs": "000000000000", "rocketmq": ""})}
NOVEMBER, DECEMBER = 1_795_000_000_000, 1_796_600_000_000
USER = User(tenant="acme", name="alice", policies=("p",))
POLICY = Policy(tenant="acme", name="p", rules=(parse_rule("allow * *"),))
ACCESS_KEY = AccessKey(key_id="K", tenant="acme", user="alice", sealed_secret=b"sealed")


class Clock:
    def __init__(self) -> None:
        self.now_ms, self.wall = 0, NOVEMBER

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.now_ms


class Cluster(Kernel):
    """Records, and a tenant's topics, routers and sessions; it may fail after so many changes."""

    def __init__(self) -> None:
        super().__init__(POLICY, USER, ACCESS_KEY)
        self.names = {"topic": {"t1", "t2"}, "router": {"r1"}}
        self.sessions = 3
        self.fails_after: int | None = None
        self.tree = self

    def step(self) -> None:
        if self.fails_after is not None:
            if not self.fails_after:
                raise KernelError(Code.UNAVAILABLE, "cut off")
            self.fails_after -= 1

    def topics(self, tenant: str) -> list[Named]:
        return [Named(each) for each in sorted(self.names["topic"])] if tenant == "acme" else []

    def routers(self, tenant: str) -> list[str]:
        return sorted(self.names["router"]) if tenant == "acme" else []

    async def forget(self, tenant: str) -> int:
        self.step()
        self.sessions -= min(self.sessions, 2)
        return self.sessions

    async def administer(self, change: PutRecord | DeleteTopic | DeleteRouter) -> int:
        self.step()
        if isinstance(change, DeleteTopic):
            self.names["topic"].discard(change.name)
            return 0
        if isinstance(change, DeleteRouter):
            self.names["router"].discard(change.name)
            return 0
        return await super().administer(change)

    def is_clean(self) -> bool:
        records = [each for each in self.held if each.startswith(("auth/", "limits/"))]
        return not (records or self.sessions or any(self.names.values()))


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


class Gateway:
    """One process's book, users, and what removes tenants."""

    def __init__(self, cluster: Kernel, clock: Clock, name: str = "one") -> None:
        client = cast("Client", cluster)
        self.clock = clock
        self.book = TenantBook(SEEDS, DECLARED, clock)
        self.book.follow(client)
        self.identity = Identity(lambda envelope, _context: envelope, None, clock)
        self.identity.follow(client)
        self.identity.bar(self.book)
        self.quotas = Quotas()
        limits = LimitRecords({}, self.quotas, clock)
        limits.follow(client)
        principals = Principals(client, self.identity.store, Keys(), clock, Random())  # type: ignore[arg-type]
        self.removal = TenantRemoval(self.book, client, principals, limits, clock, name)
        self.limits = limits

    async def add(self, name: str, *, same_customer: bool = False, **names: str) -> TenantRecord:
        return await self.book.add(name, names, "me", sign_in=True, same_customer=same_customer)

    async def removes(self, seconds: float = 60) -> bool:
        """Whether acme is gone after so long."""
        for _ in range(int(seconds * 2)):
            await self.removal.look()
            self.clock.now_ms += 500
        return self.book.state("acme") is TenantState.GONE


async def test_two_gateways_know_the_same_tenants() -> None:
    kernel, clock = Kernel(), Clock()
    one, other = Gateway(kernel, clock), Gateway(kernel, clock)
    hosts, spaces = other.book.names_in("amqp"), other.book.owners_in("rocketmq")
    await one.add("acme", amqp="shop", rocketmq="space")
    assert hosts == {"default": "/", "acme": "shop"}, "what an adapter holds is always as now"
    assert spaces == {"": "default", "space": "acme"}
    await other.book.alter("acme", {"amqp": None, "rocketmq": "room"}, "me")
    assert one.book.names_in("amqp")["acme"] == "acme"
    assert Gateway(kernel, clock).book.owners_in("rocketmq") == {"": "default", "room": "acme"}


async def test_two_gateways_that_give_away_one_name_at_once_do_not_both() -> None:
    kernel, clock = Kernel(), Clock()
    one, other = Gateway(kernel, clock), Gateway(kernel, clock)

    def meanwhile() -> None:
        kernel.before = lambda: None
        told = {"globex": TenantRecord(known_as={"amqp": "shop"})}
        kernel.put(KEY, tenant_records.encode(told))

    kernel.before = meanwhile
    with pytest.raises(KernelError, match="try again"):
        await one.add("acme", amqp="shop")
    with pytest.raises(KernelError, match="that of the tenant globex too"):
        await one.add("acme", amqp="shop")
    assert set(other.book.tenants()) == {"default", "globex"}


async def test_there_is_a_limit_of_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_book, "TENANTS_MAX", 2)
    gateway = Gateway(Kernel(), Clock())
    await gateway.add("acme")
    with pytest.raises(KernelError) as refused:
        await gateway.add("globex")
    assert refused.value.code is Code.LIMIT_EXCEEDED


async def test_there_is_a_limit_of_names_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_book, "REMOVED_MAX", 1)
    kernel, clock = Kernel(), Clock()
    gateway = Gateway(kernel, clock)
    gone = TenantRecord(state=TenantState.GONE, changed_ms=NOVEMBER)
    kernel.put(KEY, tenant_records.encode({"old": gone, "acme": TenantRecord()}))
    with pytest.raises(KernelError) as refused:
        await gateway.book.remove("acme", "me")
    assert refused.value.code is Code.LIMIT_EXCEEDED
    clock.wall = DECEMBER
    await gateway.book.remove("acme", "me")
    assert set(gateway.book.records) == {"acme"}, "the bill of November is told"


@pytest.mark.parametrize("damage", [b"\xff", b"\x80" * 9, b"\xc0", b"\x81\xa1a\x01"])
async def test_of_a_damaged_record_what_was_known_holds_and_nothing_changes(damage: bytes) -> None:
    kernel, clock = Kernel(), Clock()
    gateway = Gateway(kernel, clock)
    await gateway.add("acme")
    kernel.put(KEY, damage)
    if damage != b"\x80" * 9:
        assert gateway.book.has("acme")
    with pytest.raises(KernelError, match="damaged"):
        await gateway.add("globex")


async def test_nobody_of_a_tenant_without_sign_in_has_any_rights() -> None:
    cluster, clock = Cluster(), Clock()
    gateway = Gateway(cluster, clock)
    directory = gateway.identity.directory
    assert directory.access_key("K") is not None
    principal = directory.principal("acme", "alice")
    assert principal is not None
    access = gateway.identity.policies.access(principal)
    assert access.is_alive()
    before = gateway.identity.store.generation
    await gateway.add("acme")
    assert gateway.identity.store.generation == before, "nobody is looked at for a new tenant"
    await gateway.book.alter("acme", {}, "me", sign_in=False)
    assert gateway.identity.store.generation > before
    assert not access.is_alive()
    assert directory.access_key("K") is None
    assert directory.principal("acme", "alice") is None
    with pytest.raises(AuthError):
        await gateway.identity.sign_in("acme:alice", b"x", "192.0.2.1")
    await gateway.book.alter("acme", {}, "me", sign_in=True)
    assert access.is_alive()
    await gateway.identity.close()


async def test_while_it_is_removed_stores_make_nothing_new_of_it() -> None:
    cluster, clock = Cluster(), Clock()
    gateway = Gateway(cluster, clock)
    allowed = gateway.book.limits_under(gateway.quotas)
    await gateway.add("acme")
    assert allowed("acme").topics is None
    await gateway.book.remove("acme", "me")
    assert allowed("acme") is NOTHING_NEW
    assert await gateway.removes()
    assert allowed("acme") is NOTHING_NEW, "a gateway may not have heard of it yet"
    await gateway.add("acme", same_customer=True)
    assert allowed("acme").topics is None


@pytest.mark.parametrize("steps", range(14))
async def test_a_removal_that_is_cut_off_anywhere_goes_on(steps: int) -> None:
    cluster, clock = Cluster(), Clock()
    first = Gateway(cluster, clock)
    await first.add("acme")
    await first.limits.alter(Entity(Scope.TENANT, "acme", ""), {"topics": 9}, "me")
    await first.book.remove("acme", "me")
    cluster.fails_after = steps
    await first.removes(1)
    cluster.fails_after = None
    again = Gateway(cluster, clock)
    assert await again.removes()
    assert cluster.is_clean()
    with pytest.raises(KernelError, match="same_customer"):
        await again.add("acme")
    clock.wall = DECEMBER
    await again.add("acme")
    assert again.book.has("acme")


async def test_another_gateway_goes_on_where_one_has_ended_and_not_before() -> None:
    cluster, clock = Cluster(), Clock()
    one, other = Gateway(cluster, clock, "one"), Gateway(cluster, clock, "other")
    await one.add("acme")
    await one.book.remove("acme", "me")
    cluster.fails_after = 3
    await one.removal.look()
    cluster.fails_after = None
    left = dict(cluster.held)
    assert not await other.removes(TAKE_OVER_MS / 1_000 - 1)
    assert cluster.held == left, "the one may be at work"
    assert await other.removes()
    assert cluster.is_clean()


async def test_one_that_is_at_work_says_so_and_keeps_it() -> None:
    cluster, clock = Cluster(), Clock()
    one, other = Gateway(cluster, clock, "one"), Gateway(cluster, clock, "other")
    await one.add("acme")
    await one.book.remove("acme", "me")
    cluster.names["topic"] = {f"t{number}" for number in range(3)}
    for _ in range(4 * TAKE_OVER_MS // BEAT_MS):
        cluster.names["topic"].add("made anew by somebody who has not heard")
        await one.removal.look()
        await other.removal.look()
        assert one.book.records["acme"].worker == "one"
        clock.now_ms += BEAT_MS // 2
    assert await one.removes(SETTLE_MS / 1_000 + 2)


async def test_what_the_settings_name_is_removed_too_and_stays_so() -> None:
    cluster, clock = Cluster(), Clock()
    SEEDS["acme"] = Tenant(known_as={"amqp": "shop"})
    try:
        gateway = Gateway(cluster, clock)
        await gateway.book.remove("acme", "me")
        assert await gateway.removes()
        clock.wall = DECEMBER
        again = Gateway(cluster, clock)
        assert not again.book.has("acme")
        assert "acme" not in again.book.names_in("amqp")
        await again.book.add("acme", {}, "me", sign_in=True, same_customer=False)
        await again.book.remove("acme", "me")
    finally:
        del SEEDS["acme"]
