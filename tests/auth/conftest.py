"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline an example: on two shared cores a slow one says nothing about the code.
settings.register_profile("auth", deadline=None)
settings.load_profile("auth")
