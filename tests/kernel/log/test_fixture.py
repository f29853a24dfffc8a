"""A tiny store written by format 1 is kept as bytes: every later build must open it.

Made by `write_fixture` below: entries of two groups over three segments, a replaced suffix, a hard
state, a checkpoint, a rewritten segment, a cut after an unclean end. Never regenerate it for a
format that has been released: add a new one beside it.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernel.log.format import entry
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.mark import MARK_NAME
from kernel.log.format.meta import read_meta
from tests.kernel.log.harness import META, History, Store, body_of, new_disk
from tests.simulator.disk import SimulatedDisk

FIXTURE = Path(__file__).parent / "fixtures" / "store-format-1.json.gz"


def write_fixture() -> tuple[SimulatedDisk, History]:
    """The history that the fixture holds."""
    history = History()
    store = Store(new_disk(), history)
    store.journal.append_hard_state(1, 2, 1, 0)
    for number in range(12):
        slots = [b"entry %02d slot %d " % (number, slot) * 60 for slot in range(4)]
        store.append(number % 2, body_of(slots))
        store.commit()
    settled = [(index, slot) for index in range(1, 6) for slot in range(1, 4)]
    for group in (0, 1):
        store.append(group, body_of([], settled))
    store.commit()
    for number in range(6):
        store.append(0, body_of([b"filler %d " % number * 300]))
        store.commit()
    store.checkpoint()
    store.maintain()
    assert store.rewrite_one(0.6)
    store.checkpoint()
    store.maintain()
    store.append(1, body_of([b"of term 1, copied by recovery"]))
    store.commit()
    last = store.journal.last_index(1)
    disk = store.disk.killed_copy()
    disk.remove(MARK_NAME)  # which builds of that format did not write, and copied more
    store = Store(disk, history)  # an unclean end: the tail is copied
    store.append(1, body_of([b"of term 2"]), term=2)
    store.append(1, body_of([b"of term 3"]), term=3)
    store.append(1, body_of([b"of term 3 too"]), term=3)
    # Another leader's entry replaces both, before anybody applied them.
    store.append_at(1, last + 2, body_of([b"of term 4"]), term=4)
    store.commit()
    store.journal.append_hard_state(1, 4, 2, store.journal.last_index(1))
    store.commit()
    return store.disk, history


def load() -> tuple[SimulatedDisk, History]:
    """The fixture's disk and what it has to hold."""
    kept = json.loads(gzip.decompress(FIXTURE.read_bytes()))
    disk = SimulatedDisk()
    for name, content in kept["files"].items():
        disk.put(name, bytes.fromhex(content).ljust(kept["sizes"][name], b"\0"))
    history = History(
        bodies={int(g): [bytes.fromhex(b) for b in bodies] for g, bodies in kept["bodies"].items()},
        acked={int(group): index for group, index in kept["acked"].items()},
        snapshots={
            name: {int(index): set(slots) for index, slots in state.items()}
            for name, state in kept["snapshots"].items()
        },
    )
    return disk, history


def dump(disk: SimulatedDisk, history: History) -> bytes:
    """The fixture's bytes."""
    names = ["store.meta", "ckpt", *(f"journal/{name}" for name in disk.names("journal"))]
    contents = {name: disk.content(name) for name in names}
    return gzip.compress(
        json.dumps(
            {
                "files": {name: c.rstrip(b"\0").hex() for name, c in contents.items()},
                "sizes": {name: len(content) for name, content in contents.items()},
                "bodies": {g: [body.hex() for body in b] for g, b in history.bodies.items()},
                "acked": history.acked,
                "snapshots": {
                    name: {index: sorted(slots) for index, slots in state.items()}
                    for name, state in history.snapshots.items()
                },
            }
        ).encode(),
        mtime=0,
    )


def test_the_kept_store_opens() -> None:
    disk, history = load()
    store = Store(disk, history)
    store.check()
    assert store.journal.hard_state(1) == (4, 2, history.acked[1])
    assert store.journal.last_term(1) == 4
    assert not store.recovered.damaged
    live = sum(len(slots) for state in store.states.values() for slots in state.values())
    assert live == 27


def test_the_kept_store_goes_on() -> None:
    disk, history = load()
    store = Store(disk, history)
    store.append(0, body_of([b"written by this build"]))
    store.commit()
    store.checkpoint()
    store.maintain()
    again = Store(disk.crashed_copy(), history)
    again.check()
    assert entry.slot(again.journal.read(0, again.journal.last_index(0)), 0).startswith(b"written")


def test_the_kept_store_exercises_the_format() -> None:
    disk, _history = load()
    checkpoint = Checkpoint.read(disk)
    assert checkpoint is not None
    assert checkpoint.cuts
    assert checkpoint.closed
    assert checkpoint.groups[0].snapshot
    assert read_meta(disk) == META
    assert any(name.endswith(".loc") for name in disk.names("journal"))


@pytest.mark.parametrize("name", ["store.meta", "ckpt"])
def test_this_build_still_writes_those_bytes(name: str) -> None:
    """As long as the format is 1: what it writes and what is kept are the same."""
    kept, _ = load()
    written, _ = write_fixture()
    assert written.content(name) == kept.content(name)
    for segment in kept.names("journal"):
        assert written.content(f"journal/{segment}") == kept.content(f"journal/{segment}")
