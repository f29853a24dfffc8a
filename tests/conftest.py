"""Settings of all property tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline an example: on two shared cores a slow one says nothing about the code.
settings.register_profile("weir", deadline=None)
settings.load_profile("weir")
