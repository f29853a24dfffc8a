"""`weir serve` whose journal syncs wait as long as a file exists: `python -m … serve …`.

Everything else is the program as it is started by anybody; HELD_BY names the file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.syncs import before_syncs

POLL_S = 0.005


def hold_syncs(path: Path) -> None:
    def wait(descriptor: int) -> None:
        if "/journal/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            while path.exists():
                time.sleep(POLL_S)

    before_syncs(wait)


if __name__ == "__main__":
    hold_syncs(Path(os.environ["HELD_BY"]))
    from gateway.cli import main

    sys.exit(main())
