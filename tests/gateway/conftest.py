"""One node for all tests that only talk to it, and one cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.gateway import cluster
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

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
