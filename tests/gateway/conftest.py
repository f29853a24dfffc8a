"""One node for all tests that only talk to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("node")) as process:
        yield process
