"""Gateways beside each other at a store: what of each goes into a commit, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from kernel.remote.leader_calls.fair_gateways import (
    ACTIVE_COMMITS,
    COMMIT_BYTES_MAX,
    TURN_BYTES,
    FairGateways,
    GatewayShare,
)

CALL_BYTES = 64 * 1024
FLOOD = 100


class Store:
    """One commit is always on its way; what is carried out goes into the next one."""

    def __init__(self) -> None:
        self.commits = 0
        self.is_writing = True
        self.is_idle = False
        self.turns: list[Callable[[], None]] = []
        self.waiting: list[Callable[[], None]] = []
        self.fair = FairGateways(self, self.turns.append, 64 * 1024 * 1024)
        self.done: list[tuple[str, int]] = []
        """(gateway, number) of what was carried out since the last commit ended."""
        self.timers: list[Callable[[], None]] = []
        self.shares: dict[str, GatewayShare] = {}
        self.numbers = 0

    def when_written(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> object:
        self.timers.append(action)
        return None

    def call(self, name: str, size: int = CALL_BYTES, *, is_batch: bool = True) -> int:
        """What `GatewayService.called` does; the call's number."""
        if name not in self.shares:
            self.shares[name] = self.fair.opened()
        share = self.shares[name]
        self.numbers += 1
        action = partial(self._carry_out, name, self.numbers)
        ask = self.fair.waits if is_batch else self.fair.waits_behind
        if self.fair.alone is share or not ask(share, size, action):
            action()
        return self.numbers

    def _carry_out(self, name: str, number: int) -> None:
        self.done.append((name, number))

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for each in turns:
            each()

    def all_turns(self) -> None:
        while self.turns:
            self.turn()

    def written(self) -> list[tuple[str, int]]:
        """The commit ends; what the next one has."""
        self.all_turns()
        timers, self.timers = self.timers, []
        for each in timers:
            each()
        done, self.done = self.done, []
        self.commits += 1
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()
        return done

    def of(self, name: str) -> list[int]:
        return [number for gateway, number in self.done if gateway == name]


@pytest.fixture
def store() -> Store:
    return Store()


def test_one_gateway_alone_does_not_wait(store: Store) -> None:
    for _ in range(FLOOD):
        store.call("flood")
    assert len(store.done) == FLOOD
    assert not store.turns


def test_of_each_gateway_so_much_goes_into_a_commit_and_the_rest_into_later_ones(
    store: Store,
) -> None:
    store.call("victim", 100)
    flood = [store.call("flood") for _ in range(FLOOD)]
    ahead = store.of("flood")
    store.call("victim", 100)
    assert len(store.of("victim")) == 2
    assert len(ahead) * CALL_BYTES <= COMMIT_BYTES_MAX
    carried_out = []
    for _ in range(FLOOD):
        commit = [number for name, number in store.written() if name == "flood"]
        assert len(commit) * CALL_BYTES <= COMMIT_BYTES_MAX
        carried_out += commit
    assert carried_out == flood


def test_a_call_that_is_larger_goes_into_a_commit_of_its_own(store: Store) -> None:
    store.call("victim", 100)
    for _ in range(4):
        store.call("flood", 16 * 1024 * 1024)
    assert [len(store.written()) for _ in range(4)] == [2, 1, 1, 1]


def test_in_a_turn_no_more_is_carried_out_than_takes_its_time(store: Store) -> None:
    store.call("victim", 100)
    for _ in range(FLOOD):
        store.call("flood")
    store.written()
    before = len(store.done)
    store.turn()
    assert 0 < len(store.done) - before <= TURN_BYTES // CALL_BYTES


def test_whatever_comes_behind_a_call_that_waits_stays_behind_it(store: Store) -> None:
    store.call("victim", 100)
    numbers = [store.call("flood") for _ in range(20)]
    numbers += [store.call("flood", 10, is_batch=False), store.call("flood", 10)]
    assert store.of("flood") == numbers[: COMMIT_BYTES_MAX // CALL_BYTES]
    done: list[tuple[str, int]] = []
    while store.shares["flood"].waiting or store.turns:
        done += store.written()
    done += store.written()
    assert [number for name, number in done if name == "flood"] == numbers
    assert store.shares["flood"].waiting_bytes == 0


@pytest.mark.parametrize("seed", range(10))
def test_everything_is_carried_out_once_and_in_the_order_of_its_gateway(seed: int) -> None:
    store, chance = Store(), random.Random(seed)
    sent: dict[str, list[int]] = {name: [] for name in "abc"}
    got: dict[str, list[int]] = {name: [] for name in "abc"}
    for _ in range(400):
        what = chance.random()
        if what < 0.7:
            name = chance.choice("aaaabc")
            size = chance.choice((10, 1_000, CALL_BYTES, 1024 * 1024))
            sent[name].append(store.call(name, size, is_batch=chance.random() < 0.7))
        elif what < 0.9:
            store.turn()
        else:
            store.is_writing = chance.random() < 0.8
            store.is_idle = not store.is_writing
            for name, number in store.written():
                got[name].append(number)
    for _ in range(2):  # what waits for the commit goes on after it
        store.is_idle, store.is_writing = True, False
        for name, number in store.written():
            got[name].append(number)
    assert got == sent


def test_where_nothing_is_written_nobody_waits_for_a_commit(store: Store) -> None:
    store.call("victim", 100)
    store.is_idle, store.is_writing = True, False
    for _ in range(FLOOD):
        store.call("flood")
    store.all_turns()
    assert len(store.of("flood")) == FLOOD


def test_a_commit_that_does_not_begin_is_not_waited_for_for_ever(store: Store) -> None:
    store.call("victim", 100)
    store.is_writing = False
    flood = [store.call("flood") for _ in range(FLOOD)]
    store.all_turns()
    assert len(store.of("flood")) * CALL_BYTES == COMMIT_BYTES_MAX
    while store.timers or store.turns:
        before = len(store.of("flood"))
        timers, store.timers = store.timers, []
        for each in timers:
            each()
        store.all_turns()
        assert (len(store.of("flood")) - before) * CALL_BYTES <= COMMIT_BYTES_MAX
    assert store.of("flood") == flood


def test_what_waits_of_a_gateway_that_has_gone_is_not_carried_out(store: Store) -> None:
    store.call("victim", 100)
    for _ in range(FLOOD):
        store.call("flood")
    before = len(store.done)
    store.fair.closed(store.shares["flood"])
    store.all_turns()
    store.written()
    store.all_turns()
    assert len(store.done) == 0
    assert before < FLOOD


def test_more_than_may_wait_is_carried_out_at_once_in_order(store: Store) -> None:
    store.call("victim", 100)
    store.fair._waiting_max = 4 * CALL_BYTES
    numbers = [store.call("flood") for _ in range(30)]
    assert store.of("flood") == numbers[: len(store.of("flood"))]
    assert store.shares["flood"].waiting_bytes <= 4 * CALL_BYTES


def test_who_has_sent_nothing_for_many_commits_does_not_share(store: Store) -> None:
    store.call("victim", 100)
    store.call("flood")
    for _ in range(ACTIVE_COMMITS + 1):
        store.written()
    store.call("flood")
    assert store.fair.alone is store.shares["flood"]
    store.call("victim", 100)
    assert store.fair.alone not in store.shares.values()


def test_a_store_that_lets_everybody_in_has_a_commit_of_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FairGateways, "_may_enter", lambda *_: True)
    store.call("victim", 100)
    for _ in range(FLOOD):
        store.call("flood")
    assert len(store.written()) * CALL_BYTES > COMMIT_BYTES_MAX
