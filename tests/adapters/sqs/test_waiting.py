from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs.error_codes import SqsError
from adapters.sqs.queues.recents import Recents
from adapters.sqs.settings import PUBLISH_BYTES_MAX
from adapters.sqs.waiting import LongPolls, SharedBatches
from kernel.api.client import Received, ReceiveSpec
from kernel.common.errors import Code, KernelError

SPEC = ReceiveSpec(None, "default", wait_ms=20_000)
SOMETHING = Received(None, None, (b"token",), 0)


class Batch:
    def __init__(self) -> None:
        self.tag: object = None
        self.size_bytes = 0


class Client:
    """Keeps batches, and receives that wait for the test."""

    is_tracing = False

    def __init__(self) -> None:
        self.submitted: list[Batch] = []
        self.received: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self.ended: list[str] = []

    def batch(self, session, sink) -> Batch:
        return Batch()

    def submit(self, batch: Batch) -> None:
        self.submitted.append(batch)

    async def receive(self, spec: ReceiveSpec) -> Received:
        try:
            return await self.received
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise


class Peer:
    def __init__(self) -> None:
        self.is_lost = False
        self.action = None

    def when_lost(self, action) -> None:
        self.action = action

    def lose(self) -> None:
        self.is_lost = True
        if self.action is not None:
            self.action()


# --- shared batches ----------------------------------------------------------------------------


async def test_the_sends_of_one_turn_share_a_batch() -> None:
    client = Client()
    batches = SharedBatches(client, None, asyncio.get_running_loop())
    first, second = batches.batch(), batches.batch()
    assert first is second
    waiters = [batches.stored(first), batches.stored(first)]
    assert client.submitted == []
    await asyncio.sleep(0)
    assert client.submitted == [first]
    assert batches.batch() is not first
    batches.published(first)
    await asyncio.gather(*waiters)


async def test_what_waits_for_a_batch_goes_on_in_order_and_is_let_go() -> None:
    batches = SharedBatches(Client(), None, asyncio.get_running_loop())
    batch = batches.batch()
    done: list[int] = []
    for number in range(3):
        batches.when_stored(batch, partial(done.append, number))
    await asyncio.sleep(0)
    assert done == []
    batches.published(batch)
    assert (done, batch.tag) == ([0, 1, 2], None)


async def test_a_large_batch_does_not_wait_for_the_turn_to_end() -> None:
    client = Client()
    batches = SharedBatches(client, None, asyncio.get_running_loop())
    batch = batches.batch()
    batch.size_bytes = PUBLISH_BYTES_MAX
    waiter = batches.stored(batch)
    assert client.submitted == [batch]
    await asyncio.sleep(0)
    assert client.submitted == [batch], "submitted once"
    batches.published(batch)
    await waiter


async def test_a_sender_that_gave_up_keeps_nobody_from_hearing() -> None:
    batches = SharedBatches(Client(), None, asyncio.get_running_loop())
    batch = batches.batch()
    gave_up, waits = batches.stored(batch), batches.stored(batch)
    gave_up.cancel()
    batches.published(batch)
    await waits


# --- long polls --------------------------------------------------------------------------------


@pytest.fixture
async def client() -> Client:
    return Client()


def allowed() -> None:
    """Whoever waits may go on."""


async def started(
    polls: LongPolls, peer: Peer, check: Callable[[], None] = allowed
) -> asyncio.Task[Received | None]:
    task = asyncio.get_running_loop().create_task(polls.receive(SPEC, peer, check))
    await asyncio.sleep(0)
    assert len(polls) == 1
    return task


async def test_a_poll_gives_what_was_received(client: Client) -> None:
    polls, peer = LongPolls(client), Peer()
    task = await started(polls, peer)
    client.received.set_result(SOMETHING)
    assert await task is SOMETHING
    assert len(polls) == 0
    assert peer.action is None


async def test_a_poll_passes_errors_on(client: Client) -> None:
    polls = LongPolls(client)
    task = await started(polls, Peer())
    client.received.set_exception(KernelError(Code.NOT_FOUND, "gone"))
    with pytest.raises(KernelError):
        await task
    assert len(polls) == 0


async def test_a_poll_ends_with_its_peer(client: Client) -> None:
    polls, peer = LongPolls(client), Peer()
    task = await started(polls, peer)
    peer.lose()
    assert await task is None
    assert client.ended == ["cancelled"]


async def test_a_poll_of_a_lost_peer_does_not_begin(client: Client) -> None:
    peer = Peer()
    peer.lose()
    assert await LongPolls(client).receive(SPEC, peer, allowed) is None


async def test_a_drain_ends_polls_with_nothing_and_lets_none_wait(client: Client) -> None:
    polls = LongPolls(client)
    task = await started(polls, Peer())
    polls.drain()
    for received in (await task, await polls.receive(SPEC, Peer(), allowed)):
        assert received is not None
        assert received.deliveries is None
    assert client.ended == ["cancelled"]


async def test_a_poll_whose_right_is_withdrawn_ends_with_the_refusal(client: Client) -> None:
    polls, refused = LongPolls(client), [False]

    def check() -> None:
        if refused[0]:
            raise SqsError(errors.ACCESS_DENIED)

    task = await started(polls, Peer(), check)
    refused[0] = True
    for holder in polls.holders():
        assert list(holder.recheck()) == []
    with pytest.raises(SqsError) as raised:
        await task
    assert raised.value.kind is errors.ACCESS_DENIED
    assert (len(polls), polls.revoked, client.ended) == (0, 1, ["cancelled"])
    with pytest.raises(SqsError):
        await polls.receive(SPEC, Peer(), check)


async def test_a_poll_that_is_cancelled_for_another_reason_stays_cancelled(client: Client) -> None:
    task = await started(LongPolls(client), Peer())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- memories ----------------------------------------------------------------------------------


def test_a_memory_forgets_the_oldest() -> None:
    recents: Recents[str] = Recents(2)
    recents.note("a", 1)
    recents.note("b", 2)
    recents.note("a", 3)
    recents.note("c", 4)
    assert [recents.time_of(key) for key in "abc"] == [3, None, 4]
    assert len(recents) == 2
    assert recents.is_within("a", 10, 12)
    assert not recents.is_within("a", 10, 13)
    assert not recents.is_within("b", 10, 2)
