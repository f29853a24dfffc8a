"""Groups that are added to a cluster hold queues, and change nobody's home."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.api.client import DeleteTopic
from kernel.api.model import DEFAULT_TENANT, QueueRef, TopicOptions
from kernel.broker.group_state.state import GroupState
from kernel.broker.log_commands.commands import PutQueues
from kernel.common.errors import Code, KernelError
from kernel.common.ids import ADDED_FIRST, MEMORY_FIRST, RaftGroup, TopicId, home_of, queue_id
from kernel.common.limits import DATA_GROUPS_MAX
from kernel.common.placement import home_group, home_groups
from kernel.definitions.queue_placement import place_queues
from kernel.in_process import opening
from kernel.raft.messages import Membership
from kernel.store.recovery.recovering import Recovered
from tests.kernel.tree_client import SubscriberClient, retained, tell
from tests.simulator.world import World, simulated

ADDED = [ADDED_FIRST, RaftGroup(ADDED_FIRST + 1)]
FOUNDING = [RaftGroup(number) for number in range(1, 5)]

founding_counts = st.integers(1, DATA_GROUPS_MAX)
added_groups = st.sets(st.integers(ADDED_FIRST, MEMORY_FIRST - 1), max_size=40)


def add_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores come up with two groups more than they began with."""
    recover = opening.recover

    def recovered(*args: object, **settings: object) -> Recovered:
        found = recover(*args, **settings)  # type: ignore[arg-type]  # handed on
        states = dict(found.states)
        for group in ADDED:
            states[group] = GroupState(group)
            states[group].membership = Membership((1,))
        return dataclasses.replace(found, states=states)

    monkeypatch.setattr(opening, "recover", recovered)


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `add_groups`."""
    add_groups(monkeypatch)


@given(founding_counts, added_groups, st.text(max_size=9), st.text(max_size=9))
def test_a_home_stays_whatever_is_added(
    founding: int, added: set[int], tenant: str, name: str
) -> None:
    before = [RaftGroup(number) for number in range(founding + 1)]
    after = [*map(RaftGroup, added), *before]
    assert home_groups(after) == home_groups(before) == before[1:]
    assert home_group(home_groups(after), tenant, name) == home_group(before[1:], tenant, name)


@pytest.mark.usefixtures("grown")
@simulated()
async def test_nothing_but_queues_comes_to_an_added_group(world: World) -> None:
    store = world.opened.store
    assert store.data_groups == [*FOUNDING, *ADDED]
    assert store.home_groups == FOUNDING
    peer = world.peer()
    topics = [await peer.topic(f"t{number}", TopicOptions(queues=6)) for number in range(40)]
    for number in range(40):
        await SubscriberClient.open(world, f"g{number}")
        await tell(world, f"a/{number}", b"x", retain=True)
    client = await SubscriberClient.open(world, "all")
    await client.subscribe("a/+")
    await tell(world, "a/1", b"y")

    assert {home_of(topic.id) for topic in topics} == set(FOUNDING)
    assert len(await retained(world, "a/+")) == 40
    for group in ADDED:
        state = store.replica(group).state
        assert len(state.topics) == 40
        assert not state.topic_names
        assert not state.indexes
        assert not state.subscribers
        assert not state.retained.count(DEFAULT_TENANT)


@pytest.mark.usefixtures("grown")
@simulated()
async def test_a_topic_without_a_queue_in_its_home_is_used_and_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    administrator = world.client.administrator
    monkeypatch.setattr(administrator, "_placement", lambda _home, queues: ADDED[:queues])
    peer = world.peer()
    topic = await peer.topic("far")
    assert [each.group for each in topic.queues] == ADDED[:1]
    assert not (await peer.publish(topic, b"1", b"2")).failures
    recorder = peer.attach(topic, credit=5)
    await recorder.wait_for(2)
    await recorder.ack(0, 1)
    assert world.figures(topic).ready == 0
    await peer.publish(topic, b"3")
    recorder.cancel()
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "far"))
    state = world.opened.store.replica(ADDED[0]).state
    assert not state.topics
    assert not len(state.queues)


@simulated()
async def test_a_group_with_too_few_replicas_gets_no_new_queue_unless_all_have(
    world: World,
) -> None:
    administrator, peer = world.client.administrator, world.peer()
    homes = world.opened.store.home_groups
    administrator.closed = lambda: {homes[0], homes[1]}
    topics = [await peer.topic(f"t{number}", TopicOptions(queues=2)) for number in range(12)]
    assert {home_of(each.id) for each in topics} == set(homes), "names are where they always were"
    assert {ref.group for each in topics for ref in each.queues} == set(homes[2:])
    administrator.closed = lambda: homes
    everywhere = await peer.topic("all", TopicOptions(queues=4))
    assert {ref.group for ref in everywhere.queues} == set(homes)


@simulated(started=False)
async def test_a_group_that_was_added_is_there_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as first:
        add_groups(first)
        await world.start()
        topic = await world.peer().topic("t", TopicOptions(queues=6))
        await world.peer().publish(topic, *[b"%d" % number for number in range(12)])
        await world.stop()
    await world.start()
    assert world.opened.store.data_groups == [*FOUNDING, *ADDED]
    assert world.opened.store.home_groups == FOUNDING
    again = await world.peer().topic("t", TopicOptions(queues=6))
    assert again.queues == topic.queues
    assert world.figures(again).ready == 12


class Silent:
    """Peer stores of which nobody knows what some groups have committed."""

    def __init__(self, *groups: RaftGroup) -> None:
        self.groups = groups

    async def level(self, groups: Iterable[RaftGroup]) -> None:
        if not set(self.groups).isdisjoint(groups):
            raise KernelError(Code.UNAVAILABLE, "no leader")


@pytest.mark.usefixtures("grown")
@simulated()
async def test_changes_do_not_wait_for_an_added_group_without_a_leader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    administrator = world.client.administrator
    await world.peer().topic("t", TopicOptions(queues=6))
    left = PutQueues(
        TopicId(FOUNDING[0] << 32 | 999),
        1,
        DEFAULT_TENANT,
        "never",
        TopicOptions(),
        (QueueRef(queue_id(TopicId(FOUNDING[0] << 32 | 999), 0), ADDED[0]),),
        {},
    )
    await world.client.proposer.propose(ADDED[0], left)
    state = world.opened.store.replica(ADDED[0]).state
    assert len(state.topics) == 2

    monkeypatch.setattr(administrator._clearing, "peer_stores", Silent(ADDED[0]))
    assert await administrator.repair(FOUNDING), "to be looked at again"
    assert len(state.topics) == 2
    monkeypatch.setattr(administrator._clearing, "peer_stores", Silent())
    assert not await administrator.repair(FOUNDING)
    assert len(state.topics) == 1
    monkeypatch.setattr(administrator._clearing, "peer_stores", Silent(FOUNDING[1]))
    with pytest.raises(KernelError):
        await administrator.repair(FOUNDING)


# --- Where new queues go --------------------------------------------------------------------


@given(founding_counts, st.integers(0, 63), st.integers(1, 256))
def test_without_added_groups_and_figures_queues_count_on_from_the_home(
    founding: int, home: int, queues: int
) -> None:
    groups = [RaftGroup(number) for number in range(1, founding + 1)]
    first = home % founding
    found = place_queues(groups[first], groups, queues)
    assert found == [groups[(first + number) % founding] for number in range(queues)]


def test_new_queues_go_where_least_is_done() -> None:
    loads = {RaftGroup(1): 8.0, RaftGroup(2): 3.0, RaftGroup(3): 5.0, RaftGroup(4): 8.0}
    groups = [*FOUNDING, *ADDED]
    assert place_queues(FOUNDING[0], groups, 1, loads, 2.0) == [ADDED[0]]
    found = Counter(place_queues(FOUNDING[0], groups, 8, loads, 2.0))
    assert found == {ADDED[0]: 3, ADDED[1]: 3, FOUNDING[1]: 1, FOUNDING[2]: 1}


@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=12),
    st.integers(1, 64),
    st.floats(0.1, 1e6),
    st.sets(st.integers(0, 11)),
)
def test_what_new_queues_add_is_even(
    figures: list[float], queues: int, queue_load: float, shut: set[int]
) -> None:
    groups = [RaftGroup(number + 1) for number in range(len(figures))]
    closed = {group for group in groups if group - 1 in shut}
    loads = dict(zip(groups, figures, strict=True))
    found = place_queues(groups[0], groups, queues, loads, queue_load, closed)
    assert len(found) == queues
    able = set(groups) - closed or set(groups)
    assert set(found) <= able
    after = {each: loads[each] + found.count(each) * queue_load for each in able}
    least = min(after.values())
    assert all(after[each] - queue_load <= least * (1 + 1e-9) + 1e-6 for each in set(found))
