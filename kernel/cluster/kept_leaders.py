"""Groups whose leader an operator has moved: it stays, until the members of the cluster change or
somebody asks for an even spread.

    cluster/kept/GROUP    the numbers of the members then, "1,2,3"

Records of group 0. One that names other members than there are now says nothing any more; the
manager removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .records import NodeRecord

PREFIX = "cluster/kept/"


def key_of(group: int) -> str:
    """Key of a group's record."""
    return f"{PREFIX}{group:05d}"


def members_of(records: Mapping[int, NodeRecord]) -> bytes:
    """What a record made now says: the stores there are, whatever is to become of them."""
    return ",".join(map(str, sorted(records))).encode()


def kept(records: Mapping[str, tuple[int, bytes]], members: bytes) -> set[int]:
    """Groups that keep their leader."""
    return {_group(key) for key, (_, value) in records.items() if value == members}


def outdated(records: Mapping[str, tuple[int, bytes]], members: bytes) -> Iterable[str]:
    """Keys of the records that say nothing any more."""
    return [key for key, (_, value) in records.items() if value != members]


def _group(key: str) -> int:
    number = key.removeprefix(PREFIX)
    return int(number) if number.isdigit() else -1
