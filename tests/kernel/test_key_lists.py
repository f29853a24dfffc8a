"""The leader of a sealed queue tells which keys it has unsettled, and the store of a successor in
another Raft group asks it (ADR 31).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kernel.api.client import LeaseVerb
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import RaftGroup, queue_id
from kernel.leader_tasks import predecessors
from kernel.requests.peer_stores import NO_VERSION, KeysAnswer, KeysQuestion, Version
from kernel.store.replicas import key_lists, unsettled_keys
from kernel.store.replicas.key_lists import KeyLists
from tests.kernel.test_gates import ORDERED, Reader, put
from tests.kernel.test_spreading import spread
from tests.simulator.peer import Peer
from tests.simulator.resizing import seal
from tests.simulator.world import World, simulated

understanding = simulated(understands=LATEST, data_groups=1)
Answer = KeysAnswer | KernelError
TERM = 7


class Asker:
    """Asks a leader about queue 0 of a topic."""

    def __init__(self, world: World, topic: TopicInfo) -> None:
        self.replica = world.opened.store.replica(topic.queues[0].group)
        self.queue = queue_id(topic.id, 0)

    @property
    def lists(self) -> KeyLists:
        return self.replica.key_lists

    @property
    def end(self) -> int:
        return self.replica.state.queues[self.queue].index.tail

    def ask(
        self, version: Version = NO_VERSION, end: int | None = None, group: str = DEFAULT_GROUP
    ) -> list[Answer]:
        """Where its answer is as soon as it has come."""
        answers: list[Answer] = []
        asked = KeysQuestion(self.queue, group, self.end if end is None else end, version)
        self.lists.ask(asked, TERM, answers.append)
        return answers


def heard(answers: list[Answer]) -> KeysAnswer:
    (answer,) = answers
    assert isinstance(answer, KeysAnswer)
    return answer


def refused(answers: list[Answer]) -> Code:
    (answer,) = answers
    assert isinstance(answer, KernelError)
    return answer.code


async def sealed(world: World, *texts: str, hold: bool = True) -> tuple[Asker, Reader]:
    """A sealed queue with messages that somebody holds."""
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, *texts)
    reader = Reader(world, peer, topic)
    if hold:
        await reader.take()
    await seal(world, topic, [0])
    return Asker(world, topic), reader


@understanding
async def test_at_first_all_keys_are_told_and_then_those_that_have_become_free(
    world: World,
) -> None:
    asker, reader = await sealed(world, "a1", "b1", "a2", "c1")
    first = heard(asker.ask())
    assert (first.is_all, len(first.keys or ()), first.version) == (True, 3, (TERM, 1, 0))
    waiting, other = asker.ask(first.version), asker.ask(first.version)
    await reader.settle("a1")
    assert not waiting
    await reader.settle("b1")
    second = heard(waiting)
    assert heard(other) == second
    assert (second.is_all, len(second.keys or ()), second.version) == (False, 1, (TERM, 1, 1))
    await reader.settle("c1", "a2")
    third = heard(asker.ask(second.version))
    assert {*(second.keys or ()), *(third.keys or ())} == set(first.keys or ())
    assert heard(asker.ask(first.version)).keys == (*(second.keys or ()), *(third.keys or ()))
    assert heard(asker.ask()).keys == ()


@pytest.mark.parametrize(
    ("end", "group", "is_sealed"),
    [(7, DEFAULT_GROUP, True), (0, DEFAULT_GROUP, True), (1, "other", True), (1, "default", False)],
)
def test_who_does_not_know_the_queue_as_the_one_that_is_sealed_there_tells_nothing(
    end: int, group: str, is_sealed: bool
) -> None:
    @understanding
    async def scenario(world: World) -> None:
        peer = world.peer()
        topic = await peer.topic("work", group=ORDERED)
        await put(peer, topic, "a1")
        if is_sealed:
            await seal(world, topic, [0])
        assert refused(Asker(world, topic).ask(end=end, group=group)) is Code.NOT_FOUND

    scenario()


@pytest.mark.parametrize("version", [(TERM - 1, 1, 0), (TERM, 2, 0), (TERM, 1, 9)])
def test_who_knows_what_another_list_has_said_hears_of_all_keys(version: Version) -> None:
    @understanding
    async def scenario(world: World) -> None:
        asker, _ = await sealed(world, "a1", "b1")
        heard(asker.ask())
        again = heard(asker.ask(version))
        assert (again.is_all, len(again.keys or ())) == (True, 2)

    scenario()


@understanding
async def test_a_question_waits_a_second_or_two_and_a_list_ten_seconds_for_the_next(
    world: World,
) -> None:
    asker, _ = await sealed(world, "a1")
    first = heard(asker.ask())
    waiting = asker.ask(first.version)
    await asyncio.sleep(0.9)
    assert not waiting
    await asyncio.sleep(1.2)
    assert heard(waiting) == KeysAnswer(first.version, (), is_all=False)
    await asyncio.sleep(5)
    assert asker.lists.is_busy
    await asyncio.sleep(6)
    assert not asker.lists.is_busy
    assert heard(asker.ask(first.version)).version == (TERM, 2, 0)


@pytest.mark.parametrize(
    ("module", "name", "at_most"),
    [
        (unsettled_keys, "GATE_MESSAGES_MAX", 1),
        (key_lists, "MESSAGES_MAX", 1),
        (key_lists, "WAITING_MAX", 0),
    ],
)
def test_above_a_bound_nothing_is_told(
    module: object, name: str, at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, at_most)

    @understanding
    async def scenario(world: World) -> None:
        asker, _ = await sealed(world, "a1", "b1")
        answer = heard(asker.ask())
        if name == "WAITING_MAX":
            assert answer.is_all
            answer = heard(asker.ask(answer.version))
        assert answer == KeysAnswer(NO_VERSION, None, is_all=True)

    scenario()


@understanding
async def test_what_waits_is_refused_when_the_leader_or_the_group_goes(world: World) -> None:
    asker, _ = await sealed(world, "a1")
    first = heard(asker.ask())
    waiting = asker.ask(first.version)
    asker.lists.drop(asker.queue, DEFAULT_GROUP)
    assert refused(waiting) is Code.NOT_FOUND
    waiting = asker.ask(heard(asker.ask()).version)
    asker.lists.follow(KernelError(Code.NOT_LEADER, "another leads"))
    assert refused(waiting) is Code.NOT_LEADER
    assert not asker.lists.is_busy


# --- The asker ----------------------------------------------------------------------------------


class Between:
    """Stands between the store of a successor and the leader of its predecessor."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[KeysQuestion] = []
        self.answers: list[KeysAnswer] = []
        self.change: Callable[[KeysAnswer], KeysAnswer] = lambda answer: answer
        self.refusal: KernelError | None = None
        self._ask = world.client._predecessors._ask_keys
        monkeypatch.setattr(world.client._predecessors, "_ask_keys", self.ask)

    async def ask(self, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
        self.asked.append(question)
        if self.refusal is not None:
            raise self.refusal
        answer = self.change(await self._ask(group, question))
        self.answers.append(answer)
        return answer


LETTERS = "abcdefgh"


async def spread_while_held(world: World) -> tuple[Peer, Reader]:
    """A topic of eight keys goes to all groups; somebody holds the first message of each."""
    peer = world.peer()
    topic = await peer.topic("work", group=ORDERED)
    await put(peer, topic, *(f"{each}1" for each in LETTERS))
    reader = Reader(world, peer, topic)
    assert len(await reader.take()) == len(LETTERS)
    topic = reader.topic = await spread(world, "work", 8)
    await put(peer, topic, *(f"{each}2" for each in LETTERS))
    return peer, reader


@simulated()
async def test_each_key_goes_on_as_soon_as_its_message_is_settled_elsewhere(world: World) -> None:
    _, reader = await spread_while_held(world)
    assert await reader.take() == []
    held = held_back(world)
    assert held >= (0, len(LETTERS))
    for letter in LETTERS:
        await reader.settle(f"{letter}1")
        assert await reader.take() == [f"{letter}2"]
        assert held_back(world) < held
        held = held_back(world)
    assert held == (0, 0)


def held_back(world: World) -> tuple[int, int]:
    """(successors that wait as a whole, keys that are held back)."""
    figures = world.opened.store.statistics()
    return figures.successors_waiting, figures.keys_held_back


@pytest.mark.parametrize(
    "code", [Code.INVALID_ARGUMENT, Code.NOT_LEADER, Code.UNKNOWN_OUTCOME, Code.NOT_FOUND]
)
def test_who_is_told_nothing_waits_as_a_whole_and_loses_nothing(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INVALID_ARGUMENT is what a store of an older build says."""

    @simulated()
    async def scenario(world: World) -> None:
        between = Between(world, monkeypatch)
        between.refusal = KernelError(code, "no")
        _, reader = await spread_while_held(world)
        await reader.settle(*(f"{each}1" for each in LETTERS[1:]))
        late = 7 - len(await reader.take())
        assert late
        assert held_back(world)[0]
        await asyncio.sleep(5)
        assert await reader.take() == []
        await reader.settle("a1")
        await asyncio.sleep(3)
        assert len(await reader.take()) == late + 1
        assert between.asked

    scenario()


@simulated()
async def test_a_leader_that_is_behind_who_told_before_locks_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = Between(world, monkeypatch)
    _, reader = await spread_while_held(world)
    await reader.take()
    first = {each.keys for each in between.answers if each.is_all}
    assert len(first) == 1
    (keys,) = first

    def behind(answer: KeysAnswer) -> KeysAnswer:
        return KeysAnswer((TERM, 1, 0), keys, is_all=True)

    await reader.settle("b1")
    assert await reader.take() == ["b2"]
    between.change = behind
    await reader.settle("c1")
    await asyncio.sleep(4)
    between.change = lambda answer: answer
    await reader.settle("b2")
    await asyncio.sleep(4)
    peer = world.peer()
    topic = world.client.topic(DEFAULT_TENANT, "work")
    assert topic is not None
    await put(peer, topic, "b3")
    assert await reader.take() == ["b3", "c2"]


@simulated()
async def test_where_a_queue_ends_is_asked_again_of_who_does_not_know_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = Between(world, monkeypatch)
    seals = []
    end_of = predecessors.Predecessors._end_of

    async def count_seals(self: predecessors.Predecessors, queue: object) -> int:
        seals.append(queue)
        return await end_of(self, queue)  # type: ignore[arg-type]

    monkeypatch.setattr(predecessors.Predecessors, "_end_of", count_seals)
    _, reader = await spread_while_held(world)
    await reader.take()
    await asyncio.sleep(10)
    once = len(seals)
    assert once <= len(reader.topic.queues)
    assert len(between.asked) > 2 * once
    between.refusal = KernelError(Code.NOT_FOUND, "no such queue")
    await asyncio.sleep(3)
    between.refusal = None
    await asyncio.sleep(3)
    assert len(seals) > once
    await reader.settle(*(f"{each}1" for each in LETTERS))
    assert len(await reader.take()) == len(LETTERS)


@simulated()
async def test_no_more_questions_are_open_than_a_store_may_have(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessors, "KEYS_ASKED_MAX", 1)
    _, reader = await spread_while_held(world)
    await reader.take()
    await asyncio.sleep(2)
    assert len(world.client._predecessors._hearing) == 1
    await reader.settle(*(f"{each}1" for each in LETTERS))
    await asyncio.sleep(3)
    assert len(await reader.take()) == len(LETTERS)
    await asyncio.sleep(3)
    assert not world.client._predecessors._hearing


@simulated()
async def test_what_is_returned_elsewhere_keeps_its_key(world: World) -> None:
    _, reader = await spread_while_held(world)
    await reader.settle("a1", verb=LeaseVerb.RELEASE)
    assert await reader.take() == ["a1"]
    await reader.settle("a1")
    assert await reader.take() == ["a2"]
