"""Connections of which nobody knows yet whose they are, and which of them goes when they are many.

Whoever can reach a port can connect to it, as often as they like. What they get is a place among
those that have not signed in, or not proved themselves: there are only so many. When one more has
come than there are places,

    the address with the most of them loses its oldest.

So one address that opens thousands only ever pushes out its own, and whoever comes from another one
has a place for as long as signing in takes. If strangers come from as many addresses as there are
places, it is the connection that waits longest that goes: a newcomer still has the time in which so
many others come. Behind a proxy all have one address, and are one crowd.

An address is a host of IPv4 or a network of 64 bits of IPv6, which is what one customer has.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

_MemberT = TypeVar("_MemberT")


class Crowd(Generic[_MemberT]):
    """Them, by address; every step costs the same however many there are."""

    def __init__(self) -> None:
        self._address: dict[_MemberT, str] = {}
        # Ordered ones give their first at no cost; the first of a dict is behind all that have left
        # it since it grew last.
        self._members: dict[str, OrderedDict[_MemberT, None]] = {}
        self._addresses: dict[int, OrderedDict[str, None]] = {}
        """By how many members they have; none of an empty one."""
        self._most = 0

    def __len__(self) -> int:
        return len(self._address)

    def add(self, address: str, member: _MemberT) -> None:
        """One more stranger has connected."""
        self._address[member] = address
        members = self._members.get(address)
        if members is None:
            members = self._members[address] = OrderedDict()
        members[member] = None
        count = len(members)
        self._move(address, count - 1, count)
        self._most = max(self._most, count)

    def discard(self, member: _MemberT) -> None:
        """It has gone, or is known by now. Idempotent."""
        address = self._address.pop(member, None)
        if address is None:
            return
        members = self._members[address]
        del members[member]
        count = len(members)
        if not count:
            del self._members[address]
        self._move(address, count + 1, count)
        if self._most not in self._addresses:
            self._most = count

    def _move(self, address: str, before: int, after: int) -> None:
        if before:
            addresses = self._addresses[before]
            del addresses[address]
            if not addresses:
                del self._addresses[before]
        if after:
            self._addresses.setdefault(after, OrderedDict())[address] = None

    def address(self, member: _MemberT) -> str:
        """Where a member has come from."""
        return self._address[member]

    def __iter__(self) -> Iterator[_MemberT]:
        """All that are there now, whoever goes meanwhile."""
        return iter(list(self._address))

    def next_to_go(self) -> _MemberT:
        """The oldest of the address that has the most; there has to be one."""
        address = next(iter(self._addresses[self._most]))
        return next(iter(self._members[address]))


def address_of(host: str) -> str:
    """What is judged as one: a host of IPv4, a network of 64 bits of IPv6."""
    if ":" not in host:
        return host
    try:
        found = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
