"""A tenant's flood and another's messages, through a real store: what goes ahead of each of these.

The bounds are those of `adapters.fair_scheduler`: two turns, two commits, and of a tenant's flood
what two commits may take. Each is also shown to be able to fail, by a scheduler without it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters import fair_scheduler
from adapters.fair_scheduler import (
    ACTIVE_MS,
    PART_BYTES_MAX,
    PART_US,
    ROUND_BYTES_MAX,
    TURN_US,
    FairScheduler,
)
from kernel.log.options import JournalOptions
from tests.simulator.sharing import COMMIT_S, TURN_COST_US, Machine
from tests.simulator.world import World

FLOODING = 64
EACH_MS = 5
"""The victim sends so often."""
SMALL_BYTES = 200
BEGINNING_S = 0.1
"""All that has come before anybody could tell that it is a flood was read at once."""
QUICK_NS = 2
"""CPU time of a byte of large messages: turns are long enough for megabytes."""
SLOW_NS = 100
"""Of small ones: 64 connections make a turn of more than a second."""
MB = 1024 * 1024

TURNS_MAX = 2
COMMITS_MAX = 2
TURN_US_MAX = TURN_US + 2 * PART_US + TURN_COST_US
AHEAD_BYTES_MAX = COMMITS_MAX * (ROUND_BYTES_MAX + PART_BYTES_MAX)


def flooded(
    *,
    cost_ns: int,
    message_bytes: int,
    floods: dict[str, int] | None = None,
    seconds: float = 0.3,
    victims: bool = True,
    victim_topic: str = "",
) -> Machine:
    """A victim beside tenants that flood with so many connections each. `victim_topic`: of its own,
    in another group than theirs.
    """
    with World(options=JournalOptions()) as world:

        async def scenario() -> Machine:
            machine = Machine(world, cost_ns)
            if victim_topic:
                await machine.give_topic("victim", victim_topic)
                machine.small_commit_s = 0
            victim = machine.connect("victim", SMALL_BYTES)
            machine.ask(victim, SMALL_BYTES)
            await machine.run(0.01)
            for tenant, count in (floods or {"flood": FLOODING}).items():
                for _ in range(count):
                    machine.connect(tenant, message_bytes).socket.is_endless = True
            next_us = machine.us

            def ask() -> None:
                nonlocal next_us
                while victims and machine.us >= next_us:
                    machine.ask(victim, SMALL_BYTES)
                    next_us += EACH_MS * 1_000

            await machine.run(BEGINNING_S, ask)
            machine.waited.clear()
            machine.longest_us = 0
            await machine.run(seconds, ask)
            for connection in machine.connections:
                connection.socket.is_endless = False
            await machine.run(0.1)
            return machine

        return world.run(scenario())


def judge(machine: Machine, *, ahead_bytes_max: int = AHEAD_BYTES_MAX) -> None:
    waited = machine.waited
    assert len(waited) > 40
    assert max(each.turns for each in waited) <= TURNS_MAX
    assert machine.longest_us <= TURN_US_MAX
    assert max(each.commits for each in waited) <= COMMITS_MAX
    assert min(each.commits for each in waited) > 0
    assert max(each.bytes_ahead for each in waited) <= ahead_bytes_max


def test_ahead_of_a_message_are_two_turns_and_two_commits_of_a_flood_of_large_messages() -> None:
    machine = flooded(cost_ns=QUICK_NS, message_bytes=16 * 1024)
    judge(machine)
    # All that may be taken is taken: 256 KiB in a commit, one after the other.
    assert machine.stored["flood"] > 0.8 * 0.3 / COMMIT_S * ROUND_BYTES_MAX
    assert machine.turns.counts.held > 5


def test_ahead_of_a_message_are_two_turns_of_a_flood_of_small_ones() -> None:
    judge(flooded(cost_ns=SLOW_NS, message_bytes=500))


def test_of_messages_of_16_mb_one_goes_to_a_commit() -> None:
    machine = flooded(cost_ns=QUICK_NS, message_bytes=16 * MB, floods={"flood": 4})
    judge(machine, ahead_bytes_max=COMMITS_MAX * 16 * MB)
    assert machine.stored["flood"] >= 3 * 16 * MB


def test_a_message_of_another_group_waits_for_one_commit_of_messages_of_16_mb() -> None:
    machine = flooded(
        cost_ns=QUICK_NS, message_bytes=16 * MB, floods={"flood": 4}, victim_topic="a small one"
    )
    judge(machine, ahead_bytes_max=COMMITS_MAX * 16 * MB)
    assert max(each.bytes_meanwhile for each in machine.waited) <= 16 * MB
    assert machine.stored["flood"] >= 3 * 16 * MB


def test_of_large_messages_of_many_connections_one_goes_to_a_commit() -> None:
    machine = flooded(cost_ns=QUICK_NS, message_bytes=MB)
    judge(machine, ahead_bytes_max=COMMITS_MAX * MB)


def test_a_victim_waits_no_longer_beside_several_floods() -> None:
    floods = {f"flood {number}": 16 for number in range(3)}
    machine = flooded(cost_ns=QUICK_NS, message_bytes=16 * 1024, floods=floods)
    judge(machine, ahead_bytes_max=3 * AHEAD_BYTES_MAX)
    shares = [machine.stored[tenant] for tenant in floods]
    assert max(shares) < 1.2 * min(shares)


def test_tenants_get_the_same_however_many_connections_they_have() -> None:
    machine = flooded(
        cost_ns=QUICK_NS, message_bytes=16 * 1024, floods={"few": 2, "many": 62}, victims=False
    )
    assert machine.stored["many"] < 1.2 * machine.stored["few"]


def test_one_tenant_alone_is_read_as_if_nobody_were_there() -> None:
    with World(options=JournalOptions()) as world:

        async def scenario() -> None:
            machine = Machine(world, QUICK_NS)
            for _ in range(4):
                machine.connect("flood", 16 * 1024).socket.is_endless = True
            await machine.run(0.2)
            assert not machine.turns.is_shared
            assert machine.turns.counts.parts == machine.turns.counts.at_once == 0
            # A read of each connection in every turn.
            read = 4 * 256 * 1024 * (machine.turn - 1)
            assert sum(machine.on_the_way.values()) + machine.stored["flood"] >= read

        world.run(scenario())


def test_who_is_left_alone_is_read_at_full_speed_again() -> None:
    with World(options=JournalOptions()) as world:

        async def scenario() -> None:
            machine = Machine(world, QUICK_NS)
            victim = machine.connect("victim", SMALL_BYTES)
            machine.ask(victim, SMALL_BYTES)
            flood = [machine.connect("flood", 16 * 1024) for _ in range(4)]
            for each in flood:
                each.socket.is_endless = True
            await machine.run(0.05)
            assert machine.turns.is_shared
            for each in flood:
                each.socket.is_endless = False
                each.socket.waiting = 1_000
            machine.us += ACTIVE_MS * 1_000
            await machine.run(0.05)
            assert not machine.turns.is_shared
            assert all(each.socket.is_read for each in flood)
            for each in flood:
                each.socket.waiting = 100_000
            await machine.run(0.1)
            taken = sum(machine.on_the_way.values()) + machine.stored["flood"]
            for each in flood:
                each.socket.waiting = 100_000
            parts = machine.turns.counts.parts
            await machine.run(0.1)
            assert machine.turns.counts.parts == parts
            assert sum(machine.on_the_way.values()) + machine.stored["flood"] > taken

        world.run(scenario())


# --- The bounds can fail --------------------------------------------------------------------


def _always_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairScheduler, "_may_enter", lambda *_: True)


def _turns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_scheduler, "WAITING_US", 1_000_000)


def _one_tenant_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = FairScheduler.tenant
    monkeypatch.setattr(FairScheduler, "tenant", lambda self, name: tenant(self, ""))


def _counts_no_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairScheduler, "submits", lambda *_: None)


@pytest.mark.parametrize(
    ("without", "cost_ns", "message_bytes", "ahead_bytes_max"),
    [
        (_always_enters, QUICK_NS, 16 * 1024, AHEAD_BYTES_MAX),
        (_turns_without_end, SLOW_NS, 500, AHEAD_BYTES_MAX),
        (_one_tenant_for_all, SLOW_NS, 500, AHEAD_BYTES_MAX),
        (_counts_no_submits, QUICK_NS, MB, COMMITS_MAX * MB),
    ],
)
def test_a_scheduler_without_a_bound_does_not_keep_it(
    monkeypatch: pytest.MonkeyPatch,
    without: Callable[[pytest.MonkeyPatch], None],
    cost_ns: int,
    message_bytes: int,
    ahead_bytes_max: int,
) -> None:
    without(monkeypatch)
    with pytest.raises(AssertionError):
        judge(
            flooded(cost_ns=cost_ns, message_bytes=message_bytes), ahead_bytes_max=ahead_bytes_max
        )
