"""A node may have as many files open as the operator allows, not as a shell begins with."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.process.open_files import OPEN_FILES_MAX, OpenFiles, allow_open_files
from tests.gateway.serving import serving

LOW = 256


@pytest.fixture
def low() -> Iterator[int]:
    """A soft limit far below the hard one, which is given."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > LOW
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, hard))
    yield OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised_to_the_hard_one(low: int) -> None:
    assert allow_open_files() == OpenFiles(LOW, low)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == low
    assert allow_open_files() == OpenFiles(low, low)


@pytest.mark.parametrize("error", [ValueError("too many"), OSError("not allowed")])
def test_a_system_that_refuses_is_no_reason_not_to_start(
    low: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert allow_open_files() == OpenFiles(LOW, LOW)


def test_no_more_is_asked_for_than_is_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (LOW, infinite))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))

    assert allow_open_files() == OpenFiles(LOW, OPEN_FILES_MAX)
    assert asked == [(OPEN_FILES_MAX, infinite)]


def test_a_node_raises_its_limit_and_says_so(low: int, tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        limits = Path(f"/proc/{node.process.pid}/limits").read_text()
        (line,) = [each for each in limits.splitlines() if each.startswith("Max open files")]
        assert int(line.split()[3]) == low
    (said,) = [each for each in node.logged() if each["event"] == "open files"]
    assert (said["limit"], said["before"]) == (low, LOW)
