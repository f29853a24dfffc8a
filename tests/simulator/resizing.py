"""A topic is resized, or some of its queues are sealed and nothing else is done (ADR 31)."""

from __future__ import annotations

from kernel.api.changes import ResizeTopic
from kernel.api.model import TopicInfo
from kernel.broker.log_commands.resize_commands import Seal
from kernel.common.ids import NUMBER_BITS
from tests.simulator.world import World


async def seal(world: World, topic: TopicInfo, numbers: list[int]) -> None:
    """Seal queues, as in the middle of a resize."""
    for ref in topic.queues:
        if ref.id & NUMBER_BITS in numbers:
            await world.client.proposer.propose(ref.group, Seal(topic.id, (ref.id & NUMBER_BITS,)))


async def resize(world: World, topic: TopicInfo, queues: int) -> TopicInfo:
    """Have so many queues of a topic take messages."""
    change = ResizeTopic(topic.tenant, topic.name, queues, by_key=True)
    resized = await world.client.administer(change)
    assert isinstance(resized, TopicInfo)
    return resized
