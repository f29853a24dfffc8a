"""Commands that somebody awaits: what they come to, and their deadline."""

from __future__ import annotations

import pytest

from kernel.broker.log_commands.commands import PutRecord
from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.common.limits import PUBLISH_DEADLINE_MS
from kernel.requests.leader import Done, Leader
from kernel.requests.proposer import Proposer, first_of
from kernel.requests.request_pipeline import Attempt
from tests.simulator.world import World, simulated

GROUP = RaftGroup(1)


def proposer(world: World) -> Proposer:
    """One of its own, over the world's store."""
    sequence = iter(range(1, 100))

    def send(group: RaftGroup, attempt: Attempt, done: Done) -> None:
        attempt(world.opened.store.leader(group), done)

    return Proposer(lambda: (77, 1, next(sequence)), send)


def answering(results: object) -> Attempt:
    """An attempt that is answered at once."""
    return lambda _leader, done: done(results)


def unanswered(_leader: Leader, _done: Done) -> None:
    """An attempt that nothing ever comes of."""


@simulated()
async def test_a_command_is_carried_out_before_its_result_is_returned(world: World) -> None:
    await proposer(world).propose(GROUP, PutRecord("k", b"v", None))

    assert world.opened.store.replica(GROUP).state.records["k"] == (1, b"v")


@simulated()
async def test_the_first_result_of_a_batch_is_its_outcome(world: World) -> None:
    outcome = proposer(world).outcome

    assert await outcome(GROUP, answering(("first", "second"))) == "first"
    assert await outcome(GROUP, answering(())) is None
    assert await outcome(GROUP, answering(None)) is None


@simulated()
async def test_an_error_is_raised_whether_somebody_waits_with_a_deadline_or_without(
    world: World,
) -> None:
    error = KernelError(Code.NOT_FOUND, "none")
    for outcome in (proposer(world).outcome, proposer(world).outcome_in_time):
        with pytest.raises(KernelError) as raised:
            await outcome(GROUP, answering((error,)))
        assert raised.value is error


@simulated()
async def test_what_is_not_answered_in_time_ends_with_timeout_at_the_deadline(
    world: World,
) -> None:
    began_ms = world.clock.monotonic_ms()

    with pytest.raises(KernelError) as raised:
        await proposer(world).outcome_in_time(GROUP, unanswered)

    assert raised.value.code is Code.TIMEOUT
    assert world.clock.monotonic_ms() - began_ms == PUBLISH_DEADLINE_MS


@simulated()
async def test_an_answer_after_the_deadline_is_heard_by_nobody(world: World) -> None:
    heard: list[Done] = []
    with pytest.raises(KernelError):
        await proposer(world).outcome_in_time(GROUP, lambda _leader, done: heard.append(done))

    heard[0](("late",))


@pytest.mark.parametrize("results", [None, (), "text", ["list"]])
def test_a_batch_that_came_to_nothing_has_no_first_result(results: object) -> None:
    assert first_of(results) is None
