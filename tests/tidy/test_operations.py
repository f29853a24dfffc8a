"""Every operation that protocols.yaml lists is proved by a test that pytest really collects."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from gateway.config.loading import Operation, load
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COLLECT_SECONDS_MAX = 60
"""Collecting imports test modules and runs none of them."""


def listed_operations() -> dict[str, Operation]:
    return {
        f"{name} {operation}": entry
        for name, protocol in load(environ={}).settings.protocols.items()
        for operation, entry in protocol.operations.items()
    }


def collected(test_ids: Iterable[str]) -> set[str]:
    """Return the ids that pytest collects from the files of the given ids."""
    files = {test_id.partition("::")[0] for test_id in test_ids}
    present = sorted(file for file in files if (ROOT / file).is_file())
    if not present:
        return set()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    listing = subprocess.run(
        [*command, "-o", "addopts=--import-mode=importlib", "--no-header", *present],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=COLLECT_SECONDS_MAX,
    )
    return {line for line in listing.stdout.splitlines() if "::" in line}


def unproved(operations: Mapping[str, Operation], tests: Iterable[str]) -> list[str]:
    """Return the operations whose test is not among the collected ones."""
    known = set(tests) | {test.partition("[")[0] for test in tests}
    return [
        f"{name}: {entry.test!r} is not a collected test"
        for name, entry in operations.items()
        if entry.test not in known
    ]


def test_every_operation_names_a_test_that_is_collected() -> None:
    operations = listed_operations()
    assert unproved(operations, collected(entry.test for entry in operations.values())) == []


def test_a_refused_operation_names_its_error_and_a_partial_one_its_gap() -> None:
    for name, entry in listed_operations().items():
        assert (entry.status == "refused") == (entry.error is not None), name
        assert (entry.status == "partial") <= (entry.note is not None), name


def test_collecting_tells_tests_from_other_names() -> None:
    here = "tests/tidy/test_operations.py"
    tests = collected([f"{here}::anything", "tests/tidy/absent.py::test"])
    me = f"{here}::test_collecting_tells_tests_from_other_names"
    assert me in tests
    operations = {
        "good": Operation(status="full", test=me),
        "bad": Operation(status="full", test=f"{here}::collected"),
        "gone": Operation(status="full", test="tests/tidy/absent.py::test"),
    }
    assert [line.partition(":")[0] for line in unproved(operations, tests)] == ["bad", "gone"]
