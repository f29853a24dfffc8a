"""Majorities: etcd's 127 public cases, and what must be so for any."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from kernel.raft.members.quorum import (
    INFINITE,
    VOTE_LOST,
    VOTE_PENDING,
    VOTE_WON,
    joint_vote,
    majority_committed,
    majority_vote,
)

from .datafile import Case, data_files, read_cases

FILES = data_files("quorum")
RESULTS = {VOTE_PENDING: "VotePending", VOTE_LOST: "VoteLost", VOTE_WON: "VoteWon"}


def _sets(case: Case) -> tuple[list[int], list[int], list[int]]:
    """Both halves, and everyone in the order in which the data names them."""
    first = [int(each) for each in case.values("cfg")]
    second = [int(each) for each in case.values("cfgj") if each != "zero"]
    return first, second, list(dict.fromkeys(first + second))


def _committed(first: list[int], second: list[int], known: dict[int, int]) -> int:
    return min(
        majority_committed([known.get(each, 0) for each in first]),
        majority_committed([known.get(each, 0) for each in second]),
    )


def _run(case: Case) -> str:
    first, second, everyone = _sets(case)
    if case.command == "committed":
        values = zip(everyone, case.values("idx"), strict=True)
        known = {node: int(value) for node, value in values if value != "_"}
        index = _committed(first, second, known)
        assert index == _committed(second, first, known)
        if not second:
            assert index == _committed(first, first, known)
        return "∞" if index == INFINITE else str(index)
    values = zip(everyone, case.values("votes"), strict=True)
    votes = {node: value == "y" for node, value in values if value != "_"}
    result = joint_vote(first, second, votes)
    assert result == joint_vote(second, first, votes)
    if not second:
        assert result == joint_vote(first, first, votes) == majority_vote(first, votes)
    return RESULTS[result]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_has_the_result_the_peer_has(path: Path) -> None:
    for case in read_cases(path):
        got = _run(case)
        assert case.expected[-1].endswith(got), f"{path.name}:{case.line}"
        assert got == "∞" or case.expected[-1] == got, f"{path.name}:{case.line}"


def test_the_cases_are_all_there() -> None:
    cases = [case.command for path in FILES for case in read_cases(path)]
    assert (cases.count("committed"), cases.count("vote")) == (66, 61)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_a_majority_has_what_is_committed_and_none_has_more(count: int) -> None:
    for matches in itertools.product(range(4), repeat=count):
        index = majority_committed(matches)
        needed = count // 2 + 1
        assert sum(each >= index for each in matches) >= needed
        assert sum(each > index for each in matches) < needed
