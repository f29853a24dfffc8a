"""Settings of all property tests, and when Python's cycle collector runs."""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

YOUNG_OBJECTS = 10_000
"""As in `gateway.process.garbage`. By default the collector looks after 700, and again and again at
all that was collected: an eighth of what the lanes take."""

# No deadline for an example nor for making it: on two shared cores a slow one says nothing about
# the code.
settings.register_profile("weir", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weir")


def pytest_collection_finish() -> None:
    """What is loaded by now stays, and is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
