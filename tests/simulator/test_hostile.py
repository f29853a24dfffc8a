"""The request pipeline and the hostile client: what an adapter may rely on whatever the network
does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from kernel.api.client import (
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    PutRoute,
    PutRouter,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Match,
    Route,
    RouterOptions,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError, NotLoaded
from kernel.common.ids import RaftGroup
from kernel.common.limits import PUBLISH_DEADLINE_MS
from kernel.requests.request_pipeline import Attempt, Done, RequestPipeline
from tests.simulator import hostile_link
from tests.simulator.far import Far
from tests.simulator.world import World, simulated

GROUP = RaftGroup(1)
SEEDS = pytest.mark.parametrize("seed", range(3))

# --- The request pipeline
# ----------------------------------------------------------------------------


class Script:
    """A link that does as it is told, and a leader that executes an identity once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *fates: str) -> None:
        self._loop = loop
        self._fates = list(fates)
        self.log: list[object] = []
        self._done: set[object] = set()
        self._broken = False
        """And nobody has heard of it."""
        self.tries = 0

    def command(self, name: object) -> Attempt:
        def attempt(done: Done) -> None:
            if name not in self._done:
                self._done.add(name)
                self.log.append(name)
            done((name,))

        return attempt

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        self.tries += 1
        fate = self._fates.pop(0) if self._fates and not self._broken else "ok"
        if self._broken:
            fate = "not leader"
        if fate == "ok":
            attempt(lambda result: self._later(answer, result))
            return
        self._broken = True
        if fate == "lost answer":
            attempt(lambda result: None)
        code = Code.NOT_LEADER if fate == "not leader" else Code.UNKNOWN_OUTCOME
        self._later(answer, KernelError(code, "broken"))

    def _later(self, answer: Done, result: object) -> None:
        self._loop.call_soon(self._heard, answer, result)

    def _heard(self, answer: Done, result: object) -> None:
        if isinstance(result, KernelError):
            self._broken = False
        answer(result)


def sender(world: World, script: Script, heard: list[object]) -> Callable[[object], None]:
    request_pipeline = RequestPipeline(script, world.clock, world.loop)
    return lambda name: request_pipeline.send(GROUP, script.command(name), heard.append)


@pytest.mark.parametrize(
    "fates",
    [
        (),
        ("not leader",),
        ("lost",),
        ("lost answer",),
        ("ok", "lost answer"),
        ("ok", "lost", "ok", "lost answer"),
        ("lost answer", "not leader", "lost", "ok", "lost answer", "not leader"),
        ("lost answer",) * 20,
    ],
)
@simulated()
async def test_commands_are_executed_once_in_order_and_answered(
    world: World, fates: tuple[str, ...]
) -> None:
    script, heard = Script(world.loop, *fates), []
    send = sender(world, script, heard)
    for name in (1, 2, 3):
        send(name)
    await asyncio.sleep(25)
    assert script.log == [1, 2, 3]
    assert heard == [(1,), (2,), (3,)]


@simulated()
async def test_what_comes_during_a_pause_waits_behind_what_is_unanswered(world: World) -> None:
    script, heard = Script(world.loop, "not leader"), []
    send = sender(world, script, heard)
    send(1)
    await asyncio.sleep(0.001)
    send(2)
    assert script.tries == 1
    await asyncio.sleep(1)
    assert (script.log, heard) == ([1, 2], [(1,), (2,)])


@simulated()
async def test_without_a_leader_a_command_ends_at_its_deadline_and_tries_become_rare(
    world: World,
) -> None:
    script, heard = Script(world.loop, *["not leader"] * 1_000), []
    sender(world, script, heard)(1)
    await asyncio.sleep(PUBLISH_DEADLINE_MS / 1_000 - 0.1)
    assert heard == []
    await asyncio.sleep(2)
    ((error,),) = heard
    assert isinstance(error, KernelError)
    assert error.code is Code.TIMEOUT
    assert script.tries < 50
    await asyncio.sleep(60)
    assert script.tries < 50


@simulated()
async def test_an_error_of_the_command_itself_is_no_reason_to_try_again(world: World) -> None:
    heard: list[object] = []
    script = Script(world.loop)
    request_pipeline = RequestPipeline(script, world.clock, world.loop)
    refused = KernelError(Code.NO_SPACE, "full")
    request_pipeline.send(GROUP, lambda done: done((refused,)), heard.append)
    await asyncio.sleep(1)
    assert (heard, script.tries) == ([(refused,)], 1)


# --- The hostile client ---------------------------------------------------------------------


@SEEDS
@pytest.mark.parametrize(("queues", "share"), [(1, 0.03), (3, 0.03), (1, 0.2)])
@simulated()
async def test_every_message_is_stored_once_and_in_order(
    world: World, seed: int, queues: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile_link, "FAILURE_SHARE", share)
    far = Far(world, seed)
    topic = await far.own.topic("work", TopicOptions(queues=queues))
    batches = []
    for number in range(200):
        batches.append(far.own.submit(topic, b"%d" % (2 * number), b"%d" % (2 * number + 1)))
        await asyncio.sleep(0.005)
    for sent in batches:
        await sent.done
        assert not sent.failures
    assert min(far.client.link.failures.values()) >= 5
    recorder = world.peer().attach(topic, credit=1_000)
    await recorder.wait_for(400)
    await asyncio.sleep(1)
    by_queue: dict[int, list[int]] = {}
    for each in recorder.got:
        by_queue.setdefault(each.queue, []).append(int(each.body))
    assert all(bodies == sorted(bodies) for bodies in by_queue.values())
    assert sorted(int(body) for body in recorder.bodies) == list(range(400))


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_a_consumer_outlives_its_streams(world: World, seed: int) -> None:
    """Every message once, no more than it has credit for, and each can be settled."""
    far = Far(world, seed)
    topic = await far.own.topic("work")
    recorder = far.own.attach(topic, credit=5)
    for number in range(0, 300, 10):
        far.own.submit(topic, *[b"%d" % (number + at) for at in range(10)])
    async with asyncio.timeout(100):
        while len(recorder.got) < 300:
            await asyncio.sleep(0.05)
            assert len(recorder.held) <= 5
            held = list(recorder.held.values())
            if held and len(recorder.got) % 2:
                assert await recorder.settle(Settlement.ACK, *held) == {}
            elif held:
                recorder.settle_now(Settlement.ACK, *held)
            recorder.grant(len(held))
    assert far.client.resets > 5
    await recorder.ack()
    await asyncio.sleep(1)
    assert sorted(int(body) for body in recorder.bodies) == list(range(300))
    assert {each.attempt for each in recorder.got} == {1}
    found = world.figures(topic, DEFAULT_GROUP)
    assert (found.ready, found.leased, found.consumers) == (0, 0, 1)


@SEEDS
@simulated()
async def test_what_is_on_its_way_to_a_cancelled_consumer_comes_back(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    topic = await far.own.topic("work")
    await far.own.publish(topic, *[b"x"] * 10)
    recorder = far.own.attach(topic, credit=10)
    await asyncio.sleep(0.001)
    recorder.cancel()
    await asyncio.sleep(1)
    assert world.figures(topic, DEFAULT_GROUP).ready == 10 - len(recorder.got)


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_pulls_and_leases_work(world: World, seed: int) -> None:
    far = Far(world, seed)
    topic = await far.own.topic("work")
    await far.own.publish(topic, *[b"%d" % number for number in range(20)])
    seen: list[int] = []
    while len(seen) < 20:
        spec = ReceiveSpec(topic, DEFAULT_GROUP, messages=3, wait_ms=1_000, lease_ms=60_000)
        got = await far.client.receive(spec)
        assert got.deliveries is not None
        seen += got.deliveries.offsets
        changes = [LeaseChange(token, LeaseVerb.ACK) for token in got.tokens]
        results = await far.client.settle_leases(topic, DEFAULT_GROUP, changes)
        assert list(results) == [None] * len(changes)
    assert seen == list(range(20))
    stale = await far.client.settle_leases(topic, DEFAULT_GROUP, changes)
    assert {each.code for each in stale if each is not None} == {Code.LEASE_LOST}


@pytest.mark.usefixtures("often")
@SEEDS
@simulated()
async def test_definitions_are_made_once_and_known_when_loaded(world: World, seed: int) -> None:
    far = Far(world, seed)
    client = far.client
    with pytest.raises(NotLoaded):
        client.topic(DEFAULT_TENANT, "t0")
    await client.load(DEFAULT_TENANT, topics=["t0"], routers=["all"])
    assert client.topic(DEFAULT_TENANT, "t0") is None
    await client.administer(PutRouter(DEFAULT_TENANT, "all", RouterOptions(match=Match.ALL)))
    for number in range(20):
        await far.own.topic(f"t{number}", None, GroupOptions(), must_be_new=True)
        await client.administer(PutRoute(DEFAULT_TENANT, "all", Route(topic=f"t{number}")))
    first = client.topic(DEFAULT_TENANT, "t0")
    assert first is not None
    assert first is client.topic(DEFAULT_TENANT, "t0")
    assert first is not world.client.topic(DEFAULT_TENANT, "t0")
    assert client.to_router(DEFAULT_TENANT, "all", "").count == 20
    for number in range(20):
        await client.administer(DeleteTopic(DEFAULT_TENANT, f"t{number}"))
    assert client.topics(DEFAULT_TENANT) == []
    with pytest.raises(KernelError) as failure:
        await client.administer(DeleteTopic(DEFAULT_TENANT, "t0"))
    assert failure.value.code is Code.NOT_FOUND


@SEEDS
@simulated()
async def test_own_changes_are_known_with_their_answer_and_others_a_while_later(
    world: World, seed: int
) -> None:
    far = Far(world, seed)
    await far.own.topic("own")
    assert far.client.topic(DEFAULT_TENANT, "own") is not None
    before = far.client.topology_version
    change = DeleteTopic(DEFAULT_TENANT, "own")
    deleting = asyncio.ensure_future(world.client.administer(change))
    while world.client.topic(DEFAULT_TENANT, "own") is not None:
        await asyncio.sleep(0.0005)
    assert far.client.topic(DEFAULT_TENANT, "own") is not None
    await deleting
    await asyncio.sleep(hostile_link.DELAY_S_MAX)
    assert far.client.topic(DEFAULT_TENANT, "own") is None
    assert far.client.topology_version > before


def test_a_lane_keeps_its_order_on_a_loop_that_does_not() -> None:
    timers: list[Callable[[], None]] = []

    class Rounding:
        def time(self) -> float:
            return 0.0

        def call_at(self, when: float, action: Callable[[object], None], lane: object) -> None:
            timers.insert(0, lambda: action(lane))

    late = hostile_link.Late(Rounding(), random.Random(1))  # type: ignore[arg-type]
    heard: list[int] = []
    for number in range(3):
        late.call("lane", lambda number=number: heard.append(number))
    for timer in timers:
        timer()
    assert heard == [0, 1, 2]
