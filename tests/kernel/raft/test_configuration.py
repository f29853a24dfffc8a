"""Changes of membership: etcd's 58 public cases, the encoding, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.raft.errors import ConfigurationRefused
from kernel.raft.members import configuration
from kernel.raft.members.configuration import (
    CHANGES_MAX,
    Change,
    ConfigurationChange,
    decode,
    describe,
    encode,
)
from kernel.raft.members.tracker import Tracker
from kernel.raft.messages import Membership

from . import render
from .datafile import Case, data_files, read_cases

FILES = data_files("confchange")


def _changed(members: Membership, case: Case) -> Membership:
    tokens = " ".join(case.lines).split()
    changes = [Change(render.LETTERS.index(each[0]), int(each[1:])) for each in tokens]
    if case.command == "simple":
        return configuration.simple(members, changes)
    if case.command == "enter-joint":
        auto_leave = case.value("autoleave") == "true"
        return configuration.enter_joint(members, changes, auto_leave=auto_leave)
    assert case.command == "leave-joint"
    return configuration.leave_joint(members)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_change_makes_what_the_peer_makes_of_it(path: Path) -> None:
    tracker = Tracker(0, 16, 1 << 20)
    for last_index, case in enumerate(read_cases(path)):
        try:
            tracker.switch(_changed(tracker.members, case), last_index)
        except ConfigurationRefused as error:
            printed = [str(error)]
        else:
            printed = [describe(tracker.members)]
            for node, progress in tracker.progress.items():
                printed.append(f"{node}: {render.progress_text(progress)}")
        assert printed == list(case.expected), f"{path.name}:{case.line}"


def test_the_cases_are_all_there() -> None:
    cases = [case.command for path in FILES for case in read_cases(path)]
    counts = [cases.count(each) for each in ("simple", "enter-joint", "leave-joint")]
    assert counts == [39, 11, 8]


@pytest.mark.parametrize(
    "change",
    [
        ConfigurationChange(),
        ConfigurationChange(context=b"why"),
        ConfigurationChange((Change(configuration.ADD_VOTER, 1),)),
        ConfigurationChange(
            (Change(configuration.REMOVE, 1), Change(configuration.ADD_LEARNER, (1 << 64) - 1)),
            configuration.JOINT_EXPLICIT,
            b"address",
        ),
    ],
)
def test_a_change_comes_back_from_its_bytes(change: ConfigurationChange) -> None:
    assert decode(encode(change)) == change


@pytest.mark.parametrize(
    "body",
    [
        b"\x01",
        b"\x02\x00\x00\x00",
        b"\x01\x03\x00\x00",
        b"\x01\x00\x01\x00",
        b"\x01\x00\x01\x00" + b"\x09" * 9,
    ],
)
def test_bytes_that_are_no_change_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="configuration change"):
        decode(body)


def test_a_change_has_a_limit() -> None:
    changes = tuple(Change(configuration.ADD_LEARNER, node) for node in range(1, CHANGES_MAX + 2))
    assert decode(encode(ConfigurationChange(changes[:-1]))).changes == changes[:-1]
    with pytest.raises(ValueError, match="at most"):
        encode(ConfigurationChange(changes))
