"""Everyone who is connected is asked when rights have changed: all of them, a little at a time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from auth.policies.policy_decisions import PolicyBook
from auth.policies.policy_rules import Action, Policy, ResourceKind, parse_rule, permission
from auth.principal import Principal
from auth.users.directory import Directory
from auth.users.records import Create, User
from auth.users.store import AuthStore
from gateway.access.rights_watch import LOOK_S, SLICE_S, RightsWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from auth.policies.policy_decisions import Access

IDLE = 100_000
CONSUME_TREE = permission(Action.CONSUME, ResourceKind.TREE)


@dataclass
class Source:
    generation: int = 1


@dataclass
class Held:
    """A holder that takes so many steps."""

    steps: int = 0
    asked: int = 0
    fails: bool = False

    def recheck(self) -> Iterator[None]:
        if self.fails:
            raise ZeroDivisionError
        for _ in range(self.steps):
            yield
        self.asked += 1


@dataclass
class Serving:
    """As much of an adapter as is asked."""

    held: list[Held] = field(default_factory=list)

    def holders(self) -> list[Held]:
        return list(self.held)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def watch() -> Iterator[tuple[RightsWatch, Source, list[Serving]]]:
    source, adapters = Source(), [Serving(), Serving()]
    watch = RightsWatch(source, adapters, asyncio.get_running_loop())  # type: ignore[arg-type]
    watch.start()
    yield watch, source, adapters
    watch.stop()


Watched = tuple[RightsWatch, Source, list[Serving]]


async def test_nobody_is_asked_until_rights_change_and_then_everybody_once(watch: Watched) -> None:
    watching, source, adapters = watch
    held = [Held(), Held(steps=3), Held()]
    adapters[0].held, adapters[1].held = held[:2], held[2:]
    await asyncio.sleep(2 * LOOK_S)
    assert [each.asked for each in held] == [0, 0, 0]
    source.generation += 1
    await until(lambda: held[2].asked)
    await asyncio.sleep(2 * LOOK_S)
    assert [each.asked for each in held] == [1, 1, 1]
    assert watching.rounds == 1


async def test_a_change_in_the_middle_of_a_round_has_another_follow(watch: Watched) -> None:
    watching, source, adapters = watch
    slow, first = Held(steps=200_000), Held()
    adapters[0].held = [first, slow]
    source.generation += 1
    await until(lambda: first.asked)
    source.generation += 1
    await until(lambda: slow.asked == 2)
    assert (first.asked, watching.rounds) == (2, 2)


async def test_a_holder_that_fails_keeps_nobody_from_being_asked(watch: Watched) -> None:
    _, source, adapters = watch
    last = Held()
    adapters[0].held, adapters[1].held = [Held(fails=True), Held()], [Held(fails=True), last]
    source.generation += 1
    await until(lambda: last.asked)


class Idle:
    """A connection of a user of its own that holds one subscription."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.asked = 0

    def recheck(self) -> Iterator[None]:
        assert self.access.is_alive()
        self.access.allows(CONSUME_TREE, "devices/#")
        self.asked += 1
        return iter(())


async def test_many_idle_connections_and_changes_all_the_time_freeze_nothing() -> None:
    store = AuthStore()
    rules = (parse_rule("allow consume tree:devices/#"),)
    store.apply(Create(Policy(tenant="default", name="devices", rules=rules)))
    for number in range(IDLE):
        name = f"device-{number}"
        store.apply(Create(User(tenant="default", name=name, policies=("devices",))))
    book = PolicyBook(Directory(store, lambda sealed, _: sealed))
    serving = Serving([])
    serving.held = [
        Idle(book.access(Principal("default", f"device-{number}")))  # type: ignore[misc]
        for number in range(IDLE)
    ]
    last = serving.held[-1]
    watch = RightsWatch(store, [serving], asyncio.get_running_loop())  # type: ignore[list-item]
    watch.start()
    # The loop's own CPU, not the clock: another process on this machine is no freeze of ours.
    longest_s, at, ends = 0.0, time.thread_time(), time.monotonic() + 60
    changed = time.monotonic() - 1
    while last.asked < 3:
        now = time.monotonic()
        assert now < ends
        if now - changed > 1:
            changed = now
            store.generation += 1
        await asyncio.sleep(0.001)
        longest_s, at = max(longest_s, time.thread_time() - at), time.thread_time()
    watch.stop()
    # A copy of all of them is the longest single thing.
    assert longest_s < 100 * SLICE_S
