"""How sends share batches: one by one without delay, many together, none for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from adapters.rocketmq.origin import ORIGIN_BYTE
from adapters.rocketmq.settings import (
    ACK_ENTRIES_MAX,
    GATHER_S,
    GATHERINGS_MAX,
    PUBLISH_MESSAGES_MAX,
)
from adapters.rocketmq.transport.waiting import SharedBatches, SharedChanges
from adapters.transport import Tasks
from kernel.api.client import LeaseChange, LeaseVerb
from kernel.common.errors import Code, KernelError


class FakeBatch:
    def __init__(self) -> None:
        self.tag: Any = None
        self.count = 0
        self.size_bytes = 0


class FakeClient:
    """Keeps what is submitted; the test completes it."""

    is_tracing = False

    def __init__(self) -> None:
        self.submitted: list[FakeBatch] = []
        self.heard = asyncio.Event()

    def batch(self, session: object, sink: object) -> FakeBatch:
        return FakeBatch()

    def submit(self, batch: FakeBatch) -> None:
        self.submitted.append(batch)
        self.heard.set()

    @property
    def sizes(self) -> list[int]:
        return [len(batch.tag) for batch in self.submitted]


def made() -> tuple[SharedBatches, FakeClient]:
    client = FakeClient()
    return SharedBatches(client, None, asyncio.get_running_loop()), client  # type: ignore[arg-type]


def send(batches: SharedBatches, messages: int = 1) -> asyncio.Future[None]:
    batch = batches.batch()
    batch.count += messages
    return batches.stored(batch)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_who_sends_one_by_one_waits_for_nobody() -> None:
    batches, client = made()
    for number in range(5):
        done = send(batches)
        await turn()
        assert client.sizes == [1] * (number + 1), "handed over at the end of the turn"
        assert not done.done(), "not answered before the kernel has it"
        batches.published(client.submitted[-1])
        await done


async def test_those_that_wait_together_are_stored_together() -> None:
    batches, client = made()
    first = [send(batches) for _ in range(16)]
    await turn()
    assert client.sizes == [16], "what one turn brings is one batch"
    batches.published(client.submitted[-1])
    await asyncio.gather(*first)
    # The same clients again, one in a turn: all but an eighth are waited for.
    for _ in range(14):
        assert client.sizes == [16]
        send(batches)
        await turn()
    assert client.sizes == [16, 14]


async def test_clients_that_have_left_are_not_waited_for_long() -> None:
    batches, client = made()
    for _ in range(16):
        send(batches)
    await turn()
    batches.published(client.submitted[-1])
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    for _ in range(20):
        began = loop.time()
        client.heard.clear()
        send(batches)
        await asyncio.wait_for(client.heard.wait(), 5)
        waits.append(loop.time() - began)
        batches.published(client.submitted[-1])
    assert max(waits) < GATHER_S * GATHERINGS_MAX + 1
    # At last nobody is waited for.
    submitted = len(client.submitted)
    send(batches)
    await turn()
    assert len(client.submitted) == submitted + 1


async def test_a_slow_disk_holds_nobody_up_in_here() -> None:
    batches, client = made()
    for _ in range(4):
        send(batches)
    await turn()
    assert client.sizes == [4]
    late = send(batches)
    await asyncio.sleep(GATHER_S * 50)
    assert client.sizes == [4, 1], "though the first one is not stored"
    batches.published(client.submitted[1])
    assert late.done()


async def test_a_batch_is_bounded() -> None:
    batches, client = made()
    send(batches, PUBLISH_MESSAGES_MAX)
    send(batches, 1)
    await turn()
    assert [batch.count for batch in client.submitted] == [PUBLISH_MESSAGES_MAX, 1]


async def test_nothing_is_left_behind_at_the_end() -> None:
    batches, client = made()
    for _ in range(8):
        send(batches)
    await turn()
    send(batches)
    batches.flush()
    assert client.sizes == [8, 1]


async def test_a_call_that_was_given_up_does_not_matter_to_others() -> None:
    batches, client = made()
    gone, stays = send(batches), send(batches)
    gone.cancel()
    await turn()
    batches.published(client.submitted[0])
    assert stays.done()


# --- Changes of leases --------------------------------------------------------------------------


class Topic:
    """As much of a `TopicInfo` as is looked at."""

    def __init__(self, ident: int) -> None:
        self.id = ident


class Settling:
    """Keeps what is changed; fails what is asked of a topic without a number."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, list[bytes]]] = []

    async def settle_leases(self, topic: Topic, group: str, changes: Any, origin: int) -> Any:
        assert origin == ORIGIN_BYTE
        self.calls.append((topic.id, group, [each.token for each in changes]))
        await turn()
        if not topic.id:
            raise KernelError(Code.NOT_FOUND, "gone")
        return [
            KernelError(Code.LEASE_LOST, each.token.decode()) if each.token > b"5" else None
            for each in changes
        ]


def ack(*tokens: str) -> list[LeaseChange]:
    return [LeaseChange(token.encode(), LeaseVerb.ACK) for token in tokens]


def settling() -> tuple[SharedChanges, Settling, Tasks]:
    loop = asyncio.get_running_loop()
    client, tasks = Settling(), Tasks(loop)
    return SharedChanges(client, loop, tasks), client, tasks  # type: ignore[arg-type]


async def test_acks_of_one_turn_are_one_change_for_each_topic_and_group() -> None:
    changes, client, _ = settling()
    one, other, gone = Topic(1), Topic(2), Topic(0)
    wanted = [
        *((one, "g", "1"), (one, "g", "6 2"), (other, "g", "3"), (one, "h", "7")),
        *((gone, "g", "4"), (gone, "g", "5")),
    ]
    found = await asyncio.gather(
        *(changes.settle(topic, group, ack(*text.split())) for topic, group, text in wanted),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert client.calls == [
        (1, "g", [b"1", b"6", b"2"]),
        (2, "g", [b"3"]),
        (1, "h", [b"7"]),
        (0, "g", [b"4", b"5"]),
    ]
    told = [
        each.message if isinstance(each, KernelError) else [one and one.message for one in each]  # type: ignore[union-attr]
        for each in found
    ]
    assert told == [[None], ["6", None], [None], ["7"], "gone", "gone"]


async def test_a_change_holds_no_more_than_one_request_may() -> None:
    changes, client, _ = settling()
    many = ["1"] * (ACK_ENTRIES_MAX - 1)
    await asyncio.gather(*(changes.settle(Topic(1), "g", ack(*many)) for _ in range(2)))  # type: ignore[arg-type]
    assert [len(tokens) for _, _, tokens in client.calls] == [len(many)] * 2


async def test_whoever_left_is_not_waited_for_and_stopping_ends_all() -> None:
    changes, _, tasks = settling()
    left = changes.settle(Topic(1), "g", ack("1"))  # type: ignore[arg-type]
    stays = changes.settle(Topic(1), "g", ack("2"))  # type: ignore[arg-type]
    left.cancel()
    assert await stays == [None]
    late = changes.settle(Topic(1), "g", ack("3"))  # type: ignore[arg-type]
    await turn()
    await tasks.stop()
    assert late.cancelled()
