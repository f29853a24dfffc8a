"""One node for all tests that only talk to it, and one cluster."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import gateway.cli
from tests.gateway import cluster
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.gateway.cluster import Running


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("node")) as process:
        yield process


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One cluster for all tests of one."""
    with cluster.running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def running(shared: Running) -> Running:
    """It, whole: a test that ends a store may leave it so."""
    found, _ = shared
    found.mend()
    return shared


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run the command line in this process."""
    with pytest.raises(SystemExit) as left:
        gateway.cli.main(arguments)
    captured = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return Ran(left.value.code, captured.out, captured.err)


@pytest.fixture
def weir(
    node: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """The command line in this process, told of the node by its data directory."""
    for name in list(os.environ):
        if name.startswith("WEIR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_NODE__DATA", str(node.data))

    return partial(ran, capsys)
