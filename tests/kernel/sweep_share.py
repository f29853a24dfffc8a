"""How many of its cuts a sweep over power losses tries: all of them with WEIR_SWEEP=all (`make
sweeps`), one in so many without.
"""

from __future__ import annotations

import os


def one_in(count: int) -> int:
    """The step from one cut that is tried to the next."""
    return 1 if os.environ.get("WEIR_SWEEP") == "all" else count
