"""Which Raft groups get the queues of a new topic. Pure (ADR 30).

    nothing is known of loads   queue 0 in the home, the others in the groups that follow it by
                                number, round and round, those that were added among them
    loads are known             each queue in the group that has least by then; of equal ones in
                                that which comes first in the order above

Names stay where they are; so a group that is added gets work by new queues alone. A group that is
closed to what is new (it has fewer replicas than it should) gets none, unless all are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace

from ..common.ids import RaftGroup

NOTHING: Mapping[RaftGroup, float] = {}


def place_queues(
    home: RaftGroup,
    groups: Sequence[RaftGroup],
    queues: int,
    loads: Mapping[RaftGroup, float] = NOTHING,
    queue_load: float = 0.0,
    closed: Collection[RaftGroup] = (),
) -> list[RaftGroup]:
    """The group of each queue, by number. `groups`: all data groups, in order, the home among them;
    `loads`: what groups have to do, in any one unit (who is not named does nothing); `queue_load`:
    what one of the new queues will add to that, above 0 if loads are given; `closed`: groups that
    take nothing new.
    """
    first = groups.index(home)
    in_turn = [*groups[first:], *groups[:first]]
    able = [each for each in in_turn if each not in closed] or in_turn
    if not loads:
        return [able[number % len(able)] for number in range(queues)]
    heap = [(loads.get(group, 0.0), place, group) for place, group in enumerate(able)]
    heapify(heap)
    found: list[RaftGroup] = []
    for _ in range(queues):
        load, place, group = heap[0]
        found.append(group)
        # Whatever one queue adds, equal groups get one each before any gets two.
        heapreplace(heap, (load + queue_load, place + len(able), group))
    return found
