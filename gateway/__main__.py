"""The command `weir`, also as `python -m gateway`.

What copies beside a server gives way to it from its first instruction: to load the command line
takes more of a CPU than a small backup.
"""

from __future__ import annotations

import sys

GIVING_WAY = (["backup", "create"], ["backup", "cluster"])
"""What copies: the first two arguments."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.argv[1:3] in GIVING_WAY:
        from gateway.process.giving_way import give_way

        give_way()
    from gateway.cli import main as run

    run()


if __name__ == "__main__":
    main()
