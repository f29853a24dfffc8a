"""What a leader remembers of the batches that it has let in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from kernel.broker.group_state.state import ClientResults, GroupState
from kernel.common.errors import KernelError
from kernel.common.ids import OUTBOX_CLIENT, OUTBOX_EPOCH, RaftGroup
from kernel.requests.leader import NO_IDENTITY, Identity
from kernel.requests.publish_part import Part
from kernel.store.leading import first_tries
from kernel.store.leading.first_tries import COME_SINCE, FORGOTTEN, OVERTAKEN, FirstTries, Look
from kernel.store.leading.local_leader import LeaderHost, LocalLeader
from kernel.store.replicas.replica import Replica

CLIENT = (7, 1)


class Log:
    """What is let in is applied when the test says so."""

    def __init__(self) -> None:
        self.state = GroupState(RaftGroup(1))
        self.waiting: list[Callable[[object], None]] = []
        self.tries = FirstTries(self.state, self.waiting.append)

    def applied(self, *sequences: int, client: tuple[int, int] = CLIENT) -> None:
        known = self.state.clients.setdefault(client, ClientResults())
        known.results.update((each, ([],)) for each in sequences)
        waiting, self.waiting[:] = list(self.waiting), []
        for each in waiting:
            each(())

    def let_in(self, sequence: int, client: tuple[int, int] = CLIENT) -> None:
        assert self.tries.is_new((*client, sequence))
        self.tries.let_in((*client, sequence))

    def refusal(self, sequence: int) -> KernelError | None:
        return self.tries.refusal((*CLIENT, sequence))

    def waits(self, sequence: int) -> Look:
        assert not self.tries.is_new((*CLIENT, sequence))
        return self.tries.waits((*CLIENT, sequence))

    def is_new_now(self, sequence: int, look: Look) -> bool:
        assert self.tries.has_waited((*CLIENT, sequence), look)
        assert self.refusal(sequence) is None
        return self.tries.is_new_now((*CLIENT, sequence), look)


def test_only_what_is_newer_than_everything_let_in_is_new() -> None:
    log = Log()
    log.let_in(3)
    assert [log.tries.is_new((*CLIENT, each)) for each in (2, 3, 4)] == [False, False, True]
    assert log.tries.is_new((8, 1, 2))


def test_what_was_refused_counts_as_never_let_in() -> None:
    log = Log()
    assert log.tries.is_new((*CLIENT, 3))
    assert log.tries.is_new((*CLIENT, 3))


def test_what_the_state_has_was_let_in_by_a_leader_before() -> None:
    log = Log()
    log.applied(5, 9, 7)
    assert not log.tries.is_new((*CLIENT, 8))
    assert log.tries.is_new((*CLIENT, 10))


@pytest.mark.parametrize(
    "identity", [NO_IDENTITY, (OUTBOX_CLIENT | 3, 1, 5), (7, OUTBOX_EPOCH, 5), (0, 2, 0)]
)
def test_batches_without_a_client_and_of_outboxes_are_left_out(
    identity: tuple[int, int, int],
) -> None:
    log = Log()
    for _ in range(2):
        assert log.tries.is_new(identity)
        log.tries.let_in(identity)
    assert not len(log.tries)


def test_what_left_nothing_in_the_log_was_overtaken_if_something_newer_is_there() -> None:
    log = Log()
    log.let_in(2)  # and is taken out again: the disk is full
    assert log.is_new_now(2, log.waits(2))
    assert log.tries.is_new((*CLIENT, 2))
    log.let_in(3)
    log.applied(3)
    assert log.refusal(2) is OVERTAKEN


def test_what_is_let_in_meanwhile_may_be_newer() -> None:
    log = Log()
    log.let_in(2)
    look = log.waits(2)
    log.let_in(3)
    assert not log.is_new_now(2, look)
    assert log.is_new_now(2, log.waits(2))  # that one has left nothing either


def test_those_that_wait_together_are_let_in_together_in_their_order() -> None:
    log = Log()
    for each in (2, 3, 4):
        log.let_in(each)
    looks = {each: log.waits(each) for each in (2, 3, 4)}
    for each, look in looks.items():
        assert log.is_new_now(each, look)
        log.let_in(each)
    assert not log.tries.is_new((*CLIENT, 4))


def test_a_copy_that_comes_later_takes_the_place_of_one_that_waits() -> None:
    log = Log()
    log.let_in(2)
    first, second = log.waits(2), log.waits(2)
    assert not log.tries.has_waited((*CLIENT, 2), first)
    assert log.tries.has_waited((*CLIENT, 2), second)
    third = log.waits(2)
    assert log.tries.is_new((*CLIENT, 5))
    assert not log.tries.is_new((*CLIENT, 2))  # it has come once more
    assert not log.tries.has_waited((*CLIENT, 2), third)


def test_nothing_overtakes_what_the_state_has_forgotten() -> None:
    log = Log()
    log.let_in(3)
    log.applied(3)
    del log.state.clients[CLIENT]
    assert log.is_new_now(2, log.waits(2))
    log.let_in(2)
    assert not log.tries.is_new((*CLIENT, 2))


def test_what_is_below_the_floor_is_forgotten() -> None:
    log = Log()
    log.applied(5, 6)
    log.state.clients[CLIENT].floor = 4
    assert log.refusal(4) is FORGOTTEN


class Entries:
    """The open entry of a replica, and its leader's host, of which nobody else wants anything."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.state, self.open, self.group = log.state, self, log.state.group
        self.limits = SimpleNamespace(topics={})
        self.names = None
        self.topic_room = SimpleNamespace(stored=SimpleNamespace(is_any=False))
        self.added: list[int] = []

    def wait(self, action: Callable[[object], None]) -> None:
        self.log.waiting.append(action)

    def add_publish(self, identity: Identity, *_: object) -> None:
        self.added.append(identity[2])

    def dirty(self, *_: object, **__: object) -> None:
        pass


def test_of_the_copies_of_a_batch_only_the_last_one_is_let_in_after_all() -> None:
    """Seeds 1548 and 103: it was refused by a full disk and came again over two connections. What
    one was told was not true of the other: the first copy was stored, the second one refused.
    """
    log = Log()
    entries = Entries(log)
    leader = LocalLeader(cast("Replica", entries), cast("LeaderHost", entries))
    heard: list[object] = []

    def publish(sequence: int) -> None:
        leader.publish((*CLIENT, sequence), Part([], [], []), heard.append, 1)

    publish(5)
    publish(6)
    assert entries.added == [5, 6]  # both are taken out again: the disk is full
    publish(5)
    first, log.waiting[:] = log.waiting[0], []
    publish(5)
    first(())
    assert heard == [COME_SINCE]
    assert entries.added == [5, 6]
    log.applied()
    assert entries.added == [5, 6, 5]
    publish(5)
    log.applied(5)
    assert heard == [COME_SINCE, ([],)]


def test_clients_beyond_the_limit_are_forgotten_once_all_of_theirs_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_tries, "CLIENTS_MAX", 3)
    log = Log()
    for number in range(1, 5):
        log.let_in(5, client=(number, 1))
    assert (len(log.tries), len(log.waiting)) == (4, 1)
    log.let_in(6, client=(2, 1))  # behind what is waited for
    for number in range(1, 4):
        log.state.clients[number, 1] = ClientResults()
        log.state.clients[number, 1].results[5] = ([],)
    log.applied()
    assert len(log.tries) == 2
    known = [log.tries.is_new((number, 1, 5)) for number in range(1, 5)]
    assert known == [False, False, False, False]
    assert not log.tries.is_new((2, 1, 6))
