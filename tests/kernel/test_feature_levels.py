"""Features of the log (ADR 26): what is on is known from the log alone, and nothing is applied that
a build does not understand, or that stands before its level.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.client import PutRecord
from kernel.broker.group_state.state import GroupState
from kernel.broker.log_commands import commands
from kernel.broker.machine import Machine
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.broker.snapshots.snapshot_records import FORMAT, Header, decode
from kernel.cluster.features import check, lacking
from kernel.cluster.roster import Home, Roster
from kernel.common import feature_levels as levels
from kernel.common.errors import Code, KernelError
from kernel.common.ids import LogIndex, RaftGroup
from kernel.log.errors import FormatError, NotUnderstood
from kernel.log.format import entry as entries
from kernel.log.format.checkpoint import Checkpoint, Position, decode_checkpoint, encode_checkpoint
from kernel.rpc.handshake import Hello
from kernel.store.recovery.recovering import recover
from kernel.store.recovery.replaying import Silent
from tests.kernel import store_fixture
from tests.kernel.broker.test_clients import Nothing
from tests.simulator.world import SMALL, SeededRandom, World, simulated

FIXTURE = Path(__file__).parent.parent / "fixtures" / "store-1.json.gz"


def machine(level: int = 0, understands: int = levels.LATEST) -> Machine:
    state = GroupState(RaftGroup(0))
    state.feature_level = level
    return Machine(state, Nothing(), Silent(), understands)


def apply(to: Machine, *packed: commands.Packed) -> list[object]:
    """Apply an entry with one batch of commands; their results."""
    batch = entries.encode_batch(entries.EntryBatch(0, 0, 0, packed))
    body = entries.build(1, [batch], (), ())
    (results,) = to.apply(LogIndex(to.state.applied + 1), 1, body)
    assert isinstance(results, tuple)
    return list(results)


def do(to: Machine, *changes: commands.Control) -> list[object]:
    return apply(to, *map(commands.encode_control, changes))


def put(key: str, value: bytes | None = b"x", expected: int | None = None) -> commands.PutRecord:
    return commands.PutRecord(key, value, expected)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (commands.Command.ENQUEUE, 2),
        (commands.Command.ACK, 2),
        (commands.Command.SETTLE, 3),
        (commands.Command.LEASE, 3),
        (commands.Command.CHANGE, 3),
        (commands.Command.PUT_RECORD, 2),
        (200, 1),
        (69, 1),
    ],
)
def test_a_command_of_an_unknown_type_or_version_is_never_applied(kind: int, version: int) -> None:
    to = machine(levels.LATEST)
    with pytest.raises(NotUnderstood, match="entry 1 of group 0 has a command of type"):
        apply(to, (int(kind), version, b"\0" * 32))


def test_a_command_that_does_not_read_is_never_applied() -> None:
    with pytest.raises(NotUnderstood, match="does not read"):
        apply(machine(), (int(commands.Command.PUT_RECORD), 1, b"\xc1"))


def test_a_command_that_stands_before_its_level_is_never_applied() -> None:
    to = machine()
    with pytest.raises(NotUnderstood, match="is not on there"):
        do(to, commands.PutRecords((put("a"), put("b"))))
    assert not to.state.records


def test_a_level_beyond_what_a_build_understands_ends_it() -> None:
    with pytest.raises(NotUnderstood, match="understands 0"):
        do(machine(understands=0), commands.RaiseLevel(1))


def test_a_level_only_rises() -> None:
    to = machine()
    assert do(to, commands.RaiseLevel(1), commands.RaiseLevel(0), commands.RaiseLevel(1)) == [1] * 3


def test_what_is_on_and_what_follows_from_it_is_in_snapshot_and_state_hash() -> None:
    to = machine()
    do(to, put("a"), commands.RaiseLevel(1), put("a"))
    again = load(dump(to.state))
    assert (again.feature_level, again.record_version) == (1, to.state.record_version)
    assert state_hash(again) == state_hash(to.state)
    other = load(dump(to.state))
    other.feature_level = 0
    assert state_hash(other) != state_hash(again)


def test_a_snapshot_is_of_the_old_format_until_something_is_on() -> None:
    to = machine()
    header = decode(next(dump(to.state)))
    assert isinstance(header, Header)
    assert header.format == FORMAT
    do(to, commands.RaiseLevel(1))
    header = decode(next(dump(to.state)))
    assert isinstance(header, Header)
    assert header.format != FORMAT
    with pytest.raises(FormatError, match="level 1 on, this Weir understands 0"):
        load(dump(to.state), understands=0)


def test_a_checkpoint_is_of_the_old_version_until_something_is_on() -> None:
    plain = Checkpoint(b"s" * 16, Position(1, 4096), 7)
    assert encode_checkpoint(plain)[8] == 1
    raised = Checkpoint(b"s" * 16, Position(1, 4096), 7, damaged=frozenset({3}), level=1)
    assert encode_checkpoint(raised)[8] == 2
    assert decode_checkpoint(encode_checkpoint(raised)) == raised
    assert decode_checkpoint(encode_checkpoint(plain)) == plain


def test_a_version_of_a_record_comes_again_only_before_the_level() -> None:
    to = machine()
    assert do(to, put("a"), put("a", None), put("a")) == [1, 2, 1]
    do(to, commands.RaiseLevel(1))
    first, _, second = do(to, put("b"), put("b", None), put("b"))
    assert isinstance(first, int)
    assert isinstance(second, int)
    assert 1 < first < second
    (late,) = do(to, put("b", b"late", first))
    assert isinstance(late, KernelError)
    assert late.code is Code.ALREADY_EXISTS


def test_records_change_together_or_not_at_all() -> None:
    to = machine()
    do(to, commands.RaiseLevel(1), put("a", b"old"))
    (error,) = do(to, commands.PutRecords((put("a", b"new"), put("b", b"new", 77))))
    assert isinstance(error, KernelError)
    assert {key: value for key, (_, value) in to.state.records.items()} == {"a": b"old"}
    do(to, commands.PutRecords((put("a", None), put("b", b"new", 0))))
    assert {key: value for key, (_, value) in to.state.records.items()} == {"b": b"new"}


def test_a_level_is_turned_on_only_if_every_process_understands_it() -> None:
    check(1, 1, lacking(1, {"store 2": 1, "gateway a": 1}, ()))
    for lacks in (lacking(1, {"store 2": 0}, ()), lacking(1, {}, ["store 3"])):
        with pytest.raises(KernelError, match=r"store [23]") as found:
            check(1, 1, lacks)
        assert found.value.code is Code.UNAVAILABLE
    with pytest.raises(KernelError, match="no level 2"):
        check(2, 1, ())


def test_who_does_not_understand_what_is_on_is_not_let_in() -> None:
    roster = Roster(Home("c", 1, founder=True), "s1", {})
    old = Hello((1, 1), "c", 2, "s2", "store", "", b"n" * 16)
    new = Hello((1, 1), "c", 2, "s2", "store", "", b"n" * 16, understands=1)
    assert roster.admit(old) is None
    roster.level = lambda: 1
    for admit in (roster.admit, roster.admit_gateway):
        reason = admit(old)
        assert reason is not None
        assert "start it with a newer Weir" in reason
        assert admit(new) is None


@simulated()
async def test_a_new_store_begins_with_everything_on(world: World) -> None:
    store = world.opened.store
    assert {each.state.feature_level for each in store.replicas()} == {levels.LATEST}
    await world.crash(seed=3)
    assert {each.state.feature_level for each in world.opened.store.replicas()} == {levels.LATEST}


@pytest.mark.parametrize("name", ["clean", "cut"])
def test_an_old_directory_has_nothing_on_until_somebody_says_so(name: str) -> None:
    disk, wall_ms, _ = store_fixture.read(FIXTURE, name)
    with store_fixture.opened(disk, wall_ms) as world:

        def on() -> set[int]:
            store = world.opened.store
            return {store.member(each).state.feature_level for each in store.groups}

        async def scenario() -> None:
            await asyncio.sleep(12)
            assert on() == {0}
            checkpoint = Checkpoint.read(world.disk)
            assert checkpoint is not None
            assert checkpoint.level == 0
            two = [PutRecord("one", b"1"), PutRecord("two", b"2")]
            await world.client.put_records(two)  # one by one
            await world.client.raise_level_everywhere(levels.LATEST)
            await world.client.put_records(two)
            assert on() == {levels.LATEST}
            await asyncio.sleep(1)
            await world.crash(seed=5)
            assert on() == {levels.LATEST}
            await asyncio.sleep(12)
            checkpoint = Checkpoint.read(world.disk)
            assert checkpoint is not None
            assert checkpoint.level == levels.LATEST
            await world.crash(seed=6)
            assert on() == {levels.LATEST}

        world.run(scenario())


@pytest.mark.parametrize("seconds", [0, 12])
def test_an_older_build_opens_no_directory_with_something_on(seconds: int) -> None:
    """Neither by the log alone, nor once a checkpoint says so."""
    disk, wall_ms, _ = store_fixture.read(FIXTURE, "clean")
    with store_fixture.opened(disk, wall_ms) as world:

        async def scenario() -> None:
            await world.client.raise_level_everywhere(levels.LATEST)
            await asyncio.sleep(seconds)

        world.run(scenario())
        disk = world.disk.crashed_copy(1)
    with pytest.raises(FormatError, match="understands 0"):
        recover(disk, SeededRandom(1), SMALL, 4, understands=0)
