"""In how many stores each data group is to be: a record of group 0.

    cluster/replicas    the number, in decimal digits; no record: in every store, moved by hand

Older builds take no notice of it, so that it is written only where `replicas` is on. A cluster has
none before somebody sets it, or its first store was begun with the setting for it; and it keeps
one: a number that is large enough means every store too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..common.errors import Code, KernelError

KEY = "cluster/replicas"

REPLICAS_MAX = 15
"""A write waits for most of them: nobody needs more."""


def encode(count: int) -> bytes:
    """The record's value."""
    return b"%d" % count


def read(records: Mapping[str, tuple[int, bytes]]) -> tuple[int, int]:
    """(version, number); (0, 0) without a record, and 0 for what cannot be read."""
    version, value = records.get(KEY, (0, b""))
    return version, int(value) if value.isdigit() and len(value) <= 3 else 0


def check(count: int) -> None:
    """Raise KernelError INVALID_ARGUMENT for a number that groups cannot have. An even number
    bears the loss of no more stores than the odd one below it, and waits for one more.
    """
    if not 1 <= count <= REPLICAS_MAX or count % 2 == 0:
        message = f"a group has an odd number of replicas, 1 to {REPLICAS_MAX}"
        raise KernelError(Code.INVALID_ARGUMENT, message)
