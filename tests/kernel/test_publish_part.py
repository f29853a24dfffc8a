"""Parts of batches: what comes again must be what came first, whatever was made of it meanwhile."""

from __future__ import annotations

from kernel.api.model import QueueRef
from kernel.broker.index.features import CUT
from kernel.common.ids import QueueId, RaftGroup
from kernel.requests.publish_part import Part
from kernel.store.leading.name_matching import REFUSED, Matching
from kernel.store.leading.topic_room import Limited, Slots
from kernel.store.replicas.open_entry import OpenEntry

QUEUE, LIST = QueueId(7), QueueId(8)
GROUP = RaftGroup(1)
TENANT = "default"


class Names:
    """`name_matching.Names`: one list, and nothing is retained."""

    def lists_of(
        self, group: RaftGroup, tenant: str, name: str, *, retain: bool
    ) -> list[QueueRef] | None:
        return None if retain else [QueueRef(LIST, group)]


def made() -> Part:
    """Three messages: one is retained, one goes to a list besides."""
    slots = [b"1", b"22", b"333"]
    lengths = list(map(len, slots))
    routed = [[TENANT, "a", 1, 1, 0], [TENANT, "b", 2, 1, 0]]
    return Part([[QUEUE, 0, 3, 0]], lengths, slots, [(TENANT, 2)], routed)


def content(part: Part) -> object:
    return part.runs, part.lengths, part.buffers, part.retained, part.routed


def test_an_entry_that_grows_leaves_what_is_in_it_as_it_was() -> None:
    part, entry = made(), OpenEntry()
    for _ in range(2):
        entry.add_publish((1, 1, 1), part, lambda _: None, 0)
    assert content(part) == content(made())
    assert part.size_bytes == sum(map(len, made().buffers))
    assert entry.bytes == 2 * part.size_bytes


def test_what_there_is_no_room_for_is_cut_out_of_another_part() -> None:
    part = made()
    batch = Limited(part)
    batch.kept = {0: 1}
    batch.cut(Slots(part))
    first, _, last = made().buffers
    assert content(part) == content(made())
    assert batch.part.runs == [(QUEUE, 0, 1, CUT)]
    assert batch.part.retained == [(TENANT, 1)]
    assert batch.part.buffers == [first, last]  # the second one is referred to by nobody
    assert batch.part.size_bytes == len(first + last)


def test_what_names_bring_is_in_another_part() -> None:
    part = made()
    matching = Matching(Names(), GROUP, part)
    assert content(part) == content(made())
    assert matching.counts == [1, REFUSED]
    assert matching.part.runs == [(QUEUE, 0, 1, 0), (QUEUE, 1, 1, 0), (LIST, 1, 1, 0)]
    assert matching.part.retained == []
    assert matching.part.buffers == part.buffers
