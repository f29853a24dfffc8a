"""Things by (tenant, name), without a tuple for each: a million of them cost 30 bytes apiece."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar, overload

T = TypeVar("T")
D = TypeVar("D")


class ByName(MutableMapping[tuple[str, str], T], Generic[T]):
    """A mapping whose keys are (tenant, name) pairs, kept as one dictionary a tenant. Its order is
    that of coming, tenant by tenant.
    """

    __slots__ = ("_tenants",)

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, T]] = {}

    def of(self, tenant: str) -> Iterator[T]:
        """Everything that one tenant has."""
        return iter(self._tenants.get(tenant, {}).values())

    def count(self, tenant: str) -> int:
        """How many things one tenant has."""
        return len(self._tenants.get(tenant, ()))

    def tenants(self) -> Iterator[str]:
        """Those that have anything."""
        return iter(self._tenants)

    def everything(self) -> Iterator[T]:
        """What all of them have: `values`, fast."""
        return (each for names in self._tenants.values() for each in names.values())

    @overload
    def get(self, key: tuple[str, str]) -> T | None: ...
    @overload
    def get(self, key: tuple[str, str], default: T) -> T: ...
    @overload
    def get(self, key: tuple[str, str], default: D) -> T | D: ...
    def get(self, key: tuple[str, str], default: object = None) -> object:
        """As of a dictionary (hot)."""
        names = self._tenants.get(key[0])
        return default if names is None else names.get(key[1], default)

    def __getitem__(self, key: tuple[str, str]) -> T:
        """Raises KeyError."""
        try:
            return self._tenants[key[0]][key[1]]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        """Whether there is such a thing."""
        return isinstance(key, tuple) and key[1] in self._tenants.get(key[0], ())

    def __setitem__(self, key: tuple[str, str], value: T) -> None:
        """As of a dictionary."""
        names = self._tenants.get(key[0])
        if names is None:
            names = self._tenants[key[0]] = {}
        names[key[1]] = value

    def __delitem__(self, key: tuple[str, str]) -> None:
        """Raises KeyError."""
        names = self._tenants.get(key[0])
        if names is None or key[1] not in names:
            raise KeyError(key)
        del names[key[1]]
        if not names:
            del self._tenants[key[0]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Every key."""
        return ((tenant, name) for tenant, names in self._tenants.items() for name in names)

    def __len__(self) -> int:
        """Of all tenants together."""
        return sum(map(len, self._tenants.values()))
