"""How unpleasant the network is in the tests of the hostile client itself."""

from __future__ import annotations

import pytest

from tests.simulator import hostile, hostile_link


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command in thirty fails each way, and streams are short."""
    monkeypatch.setattr(hostile_link, "FAILURE_SHARE", 0.03)
    monkeypatch.setattr(hostile, "RESET_S", (0.05, 0.1))
