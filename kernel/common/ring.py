"""The ring of a topic: which queue has the keys of each hash slot, and who gets them at a resize
(ADR 31). Pure.

A ring is bytes: the number of the queue of each hash slot. A key k is in slot k mod their number.
There are as many for ever as at the topic's first resize: HASH_SLOTS_PER_QUEUE for each queue that
it had, slot s in queue s mod queues, so that no key moves by the ring alone.

A queue that would lose a slot is sealed, with all of its slots, and has successors. A resize
therefore moves the slots of as few queues as it can: it splits those that have most, or merges
those that have fewest, and all others stay what they are. No queue has more than twice as many as
another, but for the one slot of an odd number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest

from .ids import QUEUES_PER_TOPIC_MAX

HASH_SLOTS_PER_QUEUE = 64
"""A topic of one queue can grow to 64 queues, and one of 4 to all 256: 2 KB for 32 queues."""


def first_ring(queues: int) -> bytes:
    """The ring of a topic that nobody has resized: key % queues, exactly."""
    return bytes(range(queues)) * HASH_SLOTS_PER_QUEUE


def resized(
    ring: bytes, queues: int, free: Sequence[int], places: Mapping[int, int] | None = None
) -> bytes:
    """The ring of so many queues; `free` are the numbers that successors may have, the first ones
    first. The same one if it has so many. `places`: the Raft group of each queue; those of two
    groups never become one. Raises ValueError: not 1 to as many as there are slots, fewer than
    there are groups, or too few numbers are free.
    """
    if not 1 <= queues <= min(len(ring), QUEUES_PER_TOPIC_MAX):
        most = min(len(ring), QUEUES_PER_TOPIC_MAX)
        message = f"a topic of {len(ring)} hash slots has 1 to {most} queues, not {queues}"
        raise ValueError(message)
    known = hash_slots(ring)
    if queues > len(known):
        return _with(ring, _split(known, queues), free)
    return _with(ring, _merged(known, queues, places or {}), free)


def moved(ring: bytes, queue: int, free: Sequence[int]) -> bytes:
    """The ring in which a queue has one successor, which has all its slots: perhaps elsewhere."""
    return _with(ring, [hash_slots(ring)[queue]], free)


def one_each(ring: bytes, places: Mapping[int, int], free: Sequence[int]) -> bytes:
    """The ring in which all queues of a place have one successor. `places`: of each queue. Raises
    ValueError: too few numbers are free.
    """
    slots: dict[int, list[int]] = {}
    for slot, number in enumerate(ring):
        slots.setdefault(places[number], []).append(slot)
    return _with(ring, [each for _, each in sorted(slots.items())], free)


def hash_slots(ring: bytes) -> dict[int, list[int]]:
    """The hash slots of each queue number, both rising."""
    found: dict[int, list[int]] = {number: [] for number in sorted(set(ring))}
    for slot, number in enumerate(ring):
        found[number].append(slot)
    return found


def predecessors(before: bytes, after: bytes) -> dict[int, frozenset[int]]:
    """Of each queue of a ring that the one before it has not: the queues whose keys it gets."""
    found: dict[int, set[int]] = {}
    old = frozenset(before)
    for was, now in zip(before, after, strict=True):
        if now not in old:
            found.setdefault(now, set()).add(was)
    return {number: frozenset(each) for number, each in sorted(found.items())}


def sealed(before: bytes, after: bytes) -> frozenset[int]:
    """The queues that lose their hash slots, each of them all."""
    return frozenset(before) - frozenset(after)


def free_numbers(taken: Collection[int], first: int = 0) -> list[int]:
    """Numbers that a queue of a topic can have, from `first` on, round and round: `taken` are those
    of all that it has, sealed ones too.
    """
    free = [number for number in range(QUEUES_PER_TOPIC_MAX) if number not in taken]
    return in_turn(free, first)


def in_turn(numbers: Iterable[int], first: int) -> list[int]:
    """Numbers of queues in the order in which they are used from `first` on."""
    return sorted(numbers, key=lambda number: (number - first) % QUEUES_PER_TOPIC_MAX)


def _split(known: Mapping[int, Sequence[int]], queues: int) -> list[list[int]]:
    """Hash slots of successors: one more each time for the queue of whose successors each would
    have most (highest averages, as seats are given to parties).
    """
    parts = dict.fromkeys(known, 1)
    # The next part of each queue, the one with the most slots a part first.
    highest = [(-float(len(slots)), number) for number, slots in known.items()]
    heapify(highest)
    for _ in range(queues - len(known)):
        _, number = heappop(highest)
        parts[number] += 1
        heappush(highest, (-(len(known[number]) / parts[number]), number))
    return [
        list(known[number][part::count])
        for number, count in parts.items()
        if count > 1
        for part in range(count)
    ]


Part = tuple[int, int, list[int], bool]
"""(hash slots, lowest number, the slots, whether it is new): of queues that have as many, the lower
one comes first."""


def _merged(
    known: Mapping[int, Sequence[int]], queues: int, places: Mapping[int, int]
) -> list[list[int]]:
    """Hash slots of successors: the two queues of a place that have fewest become one, until few
    are left.
    """
    by_place: dict[int, list[Part]] = {}
    for number, slots in known.items():
        by_place.setdefault(places.get(number, 0), []).append(
            (len(slots), number, list(slots), False)
        )
    if queues < len(by_place):
        message = f"its queues are in {len(by_place)} Raft groups: it has at least one in each"
        raise ValueError(message)
    for _ in range(len(known) - queues):
        place = min(
            (each for each, parts in by_place.items() if len(parts) > 1),
            key=lambda each: _two_of(by_place[each]),
        )
        few, more = nsmallest(2, by_place[place])
        parts = [each for each in by_place[place] if each not in (few, more)]
        merged = (few[0] + more[0], min(few[1], more[1]), sorted(few[2] + more[2]), True)
        by_place[place] = [*parts, merged]
    new = [each for parts in by_place.values() for each in parts if each[3]]
    return [slots for _, _, slots, _ in sorted(new, key=lambda each: each[1])]


def _two_of(parts: Sequence[Part]) -> tuple[int, int]:
    """How many hash slots the two have that have fewest; and a number, to have an order."""
    few, more = nsmallest(2, parts)
    return few[0] + more[0], few[1]


def _with(ring: bytes, successors: Sequence[Sequence[int]], free: Sequence[int]) -> bytes:
    """The ring with new queues for these hash slots."""
    numbers = [number for number in free if number not in ring]
    if len(numbers) < len(successors):
        message = f"{len(successors)} queues need a number, and {len(numbers)} are free"
        raise ValueError(message)
    after = bytearray(ring)
    for number, slots in zip(numbers, successors, strict=False):
        for slot in slots:
            after[slot] = number
    return bytes(after)
