"""Limits that are set at run time, by several gateways at once."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.access.limit_records import LimitRecords, decode, encode, key_of
from kernel.api.client import Client
from kernel.common.errors import Code, KernelError
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import Entity, LimitSet, Scope
from kernel.store.drivers.system import SystemClock
from tests.gateway.test_identity import Kernel

ACME = Entity(Scope.TENANT, "acme", "")


def gateway(kernel: Kernel) -> LimitRecords:
    records = LimitRecords({}, Quotas(), SystemClock())
    records.follow(cast("Client", kernel))
    return records


def stored(kernel: Kernel) -> LimitSet:
    key = key_of(ACME)
    return decode(key, kernel.held[key][1])[1]


async def test_what_another_gateway_sets_meanwhile_is_not_lifted_again() -> None:
    kernel = Kernel()
    records = gateway(kernel)

    def meanwhile() -> None:
        kernel.before = lambda: None
        kernel.put(key_of(ACME), encode(LimitSet(requests=5)))

    kernel.before = meanwhile
    with pytest.raises(KernelError, match="try again") as caught:
        await records.alter(ACME, {"published_messages": 7}, "me")
    assert caught.value.code is Code.ALREADY_EXISTS
    assert stored(kernel) == LimitSet(requests=5)
    await records.alter(ACME, {"published_messages": 7}, "me")
    assert stored(kernel) == LimitSet(requests=5, published_messages=7)


async def test_what_another_gateway_alters_is_not_removed_unseen() -> None:
    kernel = Kernel()
    records = gateway(kernel)
    await records.alter(ACME, {"requests": 1}, "me")

    def meanwhile() -> None:
        kernel.before = lambda: None
        kernel.put(key_of(ACME), encode(LimitSet(requests=5)))

    kernel.before = meanwhile
    with pytest.raises(KernelError, match="try again"):
        await records.remove(ACME, "me")
    await records.remove(ACME, "me")
    assert not records.records
    await records.alter(ACME, {"requests": 2}, "me")
    assert stored(kernel) == LimitSet(requests=2)


async def test_limits_whose_record_is_damaged_can_be_set_anew() -> None:
    kernel = Kernel()
    kernel.put(key_of(ACME), b"\xff")
    records = gateway(kernel)
    assert not records.records
    await records.alter(ACME, {"requests": 1}, "me")
    assert stored(kernel) == LimitSet(requests=1)
