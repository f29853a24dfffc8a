"""Leases that the last leader of a group gave to pulls of gateways: the answer may have died with
it, and then nobody knows that the message is his.

A lease made for a pull has a note in the log, which names the gateway and the pull. Whoever leads
next asks each gateway about its own. A lease that no gateway disowns runs to its time: its answer
has been heard, as far as anybody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from ...common.ids import QueueId, RaftGroup
from ...store.replicas.replica import Replica

NUMBER_BITS = 40
"""Pulls of one process: its numbers begin at 1."""

Lost = dict[int, dict[int, "LostLease"]]
"""By the tag of the gateway and the number of the pull."""


@dataclass(frozen=True, slots=True, eq=False)
class LostLease:
    """What a pull got, as far as it still has it."""

    group: RaftGroup
    queue: QueueId
    name: str
    slot_sizes: dict[int, int]
    """By offset."""
    lease: int
    origin: int


def tag_of(process: str) -> int:
    """Short name of a gateway's process, in notes: 24 bits, since those that meet are few."""
    return int.from_bytes(blake2b(process.encode(), digest_size=3).digest(), "big") | 1


def note_of(tag: int, number: int) -> int:
    """What the log says of a lease for a pull."""
    return tag << NUMBER_BITS | number


def lost_leases(replica: Replica) -> Lost:
    """Those that the last leader has made lately, and that are still held."""
    found: Lost = {}
    for each in replica.noted:
        offsets = each.held(replica)
        if offsets:
            tag, number = divmod(each.note, 1 << NUMBER_BITS)
            sizes = each.slot_sizes(offsets)
            lease = LostLease(replica.group, each.queue, each.group, sizes, each.lease, each.origin)
            found.setdefault(tag, {})[number] = lease
    return found


def keep_lost(lost: Lost, keeps: Callable[[LostLease], bool]) -> None:
    """Forget the others."""
    for tag, leases in list(lost.items()):
        left = {number: each for number, each in leases.items() if keeps(each)}
        if left:
            lost[tag] = left
        else:
            del lost[tag]
