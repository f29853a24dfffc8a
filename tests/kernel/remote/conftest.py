"""Two gateways that know each other, over one store or three."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kernel.remote.cluster import Pair, running_stores, two_gateways_of


@asynccontextmanager
async def _running(path: Path, count: int, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Pair]:
    """And nothing that a connection breaks by without anybody noticing."""
    async with running_stores(path, count) as nodes, two_gateways_of(nodes) as both:
        yield nodes, *both
    failed = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert not failed


@pytest.fixture(params=[1, 3])
async def pair(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Pair]:
    """Over one store, and over three."""
    async with _running(tmp_path, request.param, caplog) as both:
        yield both


@pytest.fixture
async def two(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Pair]:
    """Over one store."""
    async with _running(tmp_path, 1, caplog) as both:
        yield both


@pytest.fixture
async def three(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Pair]:
    """Over three stores."""
    async with _running(tmp_path, 3, caplog) as both:
        yield both
