"""`weir` with a disk whose syncs fail with EIO while a file exists.

    python -m tests.chaos.failing_disk FILE store --data DIR ...

Only the system calls are others: everything above `os.fdatasync` and `os.pwritev` is the product
as it is, in a process of its own, and the product knows nothing of it. (strace can inject the
same, and is not on every machine; a hook in the disk driver would be product code for tests.) As
after a real EIO, nobody may trust what the file holds: the pages stay in the page cache, perhaps,
and the product must not find out by trying again.
"""

from __future__ import annotations

import errno
import os
import sys

from tests.syncs import before_syncs


def fail_while_there(path: str) -> None:
    """Have syncs fail while a file exists."""

    def fail(_descriptor: int) -> None:
        if os.path.exists(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    before_syncs(fail)


if __name__ == "__main__":
    fail_while_there(sys.argv.pop(1))
    from gateway.cli import main

    main()
