"""How fast stores take in copies of groups is a record that every store goes by."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kernel.cluster import copy_rate, replica_count, short_groups
from kernel.cluster.copy_rate import KEY, LOOK_MS, RATE_MAX, RATE_MIN, URGENT, CopyRate
from kernel.cluster.short_groups import ShortGroup
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup
from tests.free_ports import free_ports
from tests.kernel.cluster.test_growing import Store
from tests.kernel.three_stores import until

if TYPE_CHECKING:
    from kernel.common.ports import Clock
    from kernel.store import node

RATE = 20_000_000


def test_without_a_record_the_setting_says_it_and_a_group_that_is_short_has_more() -> None:
    now_ms = 0
    records: dict[str, tuple[int, bytes]] = {}
    healing = SimpleNamespace(lost=[RaftGroup(3)])
    rate = CopyRate(
        cast("node.Store", SimpleNamespace(consensus=SimpleNamespace(healing=healing))),
        cast("Clock", SimpleNamespace(monotonic_ms=lambda: now_ms)),
        lambda prefix: {key: each for key, each in records.items() if key.startswith(prefix)},
        RATE,
    )

    def said() -> list[int]:
        return [rate.of(RaftGroup(group)) for group in (1, 2, 3)]

    assert said() == [RATE, RATE, URGENT * RATE], "3 has lost what it had"
    records[KEY] = (1, copy_rate.encode(2 * RATE))
    records[short_groups.KEY] = (1, short_groups.encode({2: ShortGroup("2 of 3 replicas", True)}))
    assert said() == [RATE, RATE, URGENT * RATE], "looked at a moment ago"
    now_ms += LOOK_MS
    assert said() == [2 * RATE, URGENT * 2 * RATE, URGENT * 2 * RATE]
    for value, expected in ((b"0", 0), (b"of a later build", RATE), (b"9" * 13, RATE)):
        now_ms += LOOK_MS
        records[KEY] = (2, value)
        assert said() == [expected, URGENT * expected, URGENT * expected]


@pytest.mark.parametrize("rate", [1, RATE_MIN - 1, RATE_MAX + 1, -2])
def test_what_would_be_a_standstill_or_is_no_bound_is_refused(rate: int) -> None:
    with pytest.raises(KernelError) as refused:
        copy_rate.check(rate)
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("rate", [0, RATE_MIN, RATE_MAX])
def test_bounds_themselves_are_none(rate: int) -> None:
    copy_rate.check(rate)
    assert copy_rate.read({KEY: (7, copy_rate.encode(rate))}) == (7, rate)


async def test_it_is_set_while_stores_run_shown_and_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    store = Store(1, tmp_path / "1", port, {}, 2, 0)
    await store.start()
    try:
        await until(lambda: 1 in store.roster.records)
        await until(lambda: store.local.store.serving(METADATA_GROUP) is not None)
        admin = store.cluster_admin
        status = await admin.status()
        assert (status.copy_rate, [each.copy_setting for each in status.nodes]) == (None, [0])
        receiver = store.local.receiver
        assert receiver is not None
        monkeypatch.setattr(copy_rate, "LOOK_MS", 0)
        for rate in (copy_rate.DEFAULT, RATE, copy_rate.DEFAULT, copy_rate.DEFAULT):
            await admin.set_copy_rate(rate)
            shown = None if rate == copy_rate.DEFAULT else rate
            assert (await admin.status()).copy_rate == shown
            assert receiver.rate_of(RaftGroup(1)) == (shown or 0)
        for rate in (RATE, 0, 2 * RATE, 2 * RATE):
            await admin.set_copy_rate(rate)
            assert (await admin.status()).copy_rate == rate
            assert receiver.rate_of(RaftGroup(1)) == rate
        with pytest.raises(KernelError) as refused:
            await admin.set_copy_rate(1)
        assert refused.value.code is Code.INVALID_ARGUMENT
    finally:
        await store.stop()
    store = Store(1, tmp_path / "1", port, {}, 2, 0)
    await store.start()
    try:
        await until(lambda: store.local.store.serving(METADATA_GROUP) is not None)
        async with asyncio.timeout(30):
            while (await store.cluster_admin.status()).copy_rate != 2 * RATE:
                await asyncio.sleep(0.05)
        # A leader of an older build reads the number of replicas alone, which is none.
        monkeypatch.setattr(
            store.cluster_service,
            "_set_copy_rate",
            lambda _rate, _reply: replica_count.check(0),
        )
        with pytest.raises(KernelError, match="older build") as refused:
            await store.cluster_admin.set_copy_rate(RATE)
        assert refused.value.code is Code.NOT_ALLOWED
    finally:
        await store.stop()
