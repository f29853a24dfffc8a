"""The limit on open files, for loads of very many connections."""

from __future__ import annotations

import resource

from benchmarks.load.errors import BenchError

SPARE_FILES = 64


def allow_connections(wanted: int) -> None:
    """Raise the limit so that so many connections can be open. Raises BenchError if the system
    does not let us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise BenchError(f"{wanted} connections need more open files than {hard} (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
