"""Our core under the schedules of etcd's 28 interaction files: what they print is printed.

Compared are all lines but the peer's log: messages, Readies, logs, states, statuses.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .datafile import data_files, read_cases
from .interaction import Group

NOT_APPLICABLE: dict[str, str] = {}
"""Files whose schedule does not fit our needs: name -> the reason. None so far."""

LEVELS = ("DEBUG ", "INFO ", "WARN ", "ERROR ", "FATAL ")
FILES = data_files("interaction")


def _compared(lines: list[str]) -> list[str]:
    return [each for each in lines if not each.strip().startswith(LEVELS) and each != "ok"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_schedule_prints_what_the_peer_prints(path: Path) -> None:
    if path.stem in NOT_APPLICABLE:
        pytest.skip(NOT_APPLICABLE[path.stem])
    group = Group()
    for case in read_cases(path):
        printed = group.run(case)
        where = f"{path.name}:{case.line} {case.command}"
        assert _compared(printed) == _compared(list(case.expected)), where


def test_the_files_are_all_there() -> None:
    assert len(FILES) == 28
    assert sum(1 for path in FILES for _ in read_cases(path)) == 558
    assert not set(NOT_APPLICABLE) - {path.stem for path in FILES}
