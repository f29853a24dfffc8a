"""A cluster as processes of their own: three stores and two gateways, on free loopback ports."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.loading import load
from gateway.serving.store_node import found_cluster
from tests.free_ports import free_ports
from tests.gateway.serving import NO_VARIABLES, Process, launched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.config.schema import Settings

SECRET = "sixteen bytes or more"
SECONDS = 60
STORES = (1, 2, 3)
GROUPS = 3
"""Group 0 and two for data."""


Running = tuple["Cluster", list[Process]]
"""And its gateways."""


def until(
    condition: Callable[[], object], what: str | Callable[[], str], seconds: float = SECONDS
) -> None:
    """`what` is told if it does not happen; asked for then, it can tell what is there instead."""
    ends, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() > ends:
            told = what if isinstance(what, str) else what()
            pytest.fail(f"not within {seconds} s: {told}")
        pause.wait(0.05)


class Cluster:
    """Started with `running`; every process is killed at the end."""

    def __init__(
        self,
        folder: Path,
        stack: contextlib.ExitStack,
        common: Sequence[str] = (),
        secret: str = SECRET,
        stores: Sequence[int] = STORES,
    ) -> None:
        """`common`: settings of stores and gateways; `secret` empty: they have none; `stores`:
        numbers of those that may be started.
        """
        self._folder = folder
        self._stack = stack
        self._common = common
        self._secret = secret
        self._ports = dict(zip(stores, free_ports(len(stores)), strict=True))
        self.stores: dict[int, Process] = {}

    def _settings(self, number: int) -> list[str]:
        """Of a store; 0: of any gateway."""
        peers = ",".join(
            f"{each}@127.0.0.1:{port}" for each, port in self._ports.items() if each != number
        )
        return [f"node.cluster.peers={peers}", "node.cluster.election_timeout_ms=500"]

    def _store_settings(self, number: int) -> list[str]:
        return [
            *self._settings(number),
            "node.cluster.replicas=0",  # whoever joins votes everywhere, and leaders stay
            *self._common,
            f"node.cluster.number={number}",
            f"node.store.port={self._ports[number]}",
            "node.cluster.data_groups=2",
        ]

    def flags(self, number: int) -> list[str]:
        """For `weir` commands about a store."""
        return [flag for setting in self._store_settings(number) for flag in ("--set", setting)]

    def settings(self, number: int) -> Settings:
        """Of a store."""
        data = f"node.data={self._folder / str(number)}"
        flags = ["node.role=store", data, *self._store_settings(number)]
        return load(None, flags, environ={}).settings

    def found(self) -> None:
        """As `weir cluster init` does."""
        found_cluster(self._folder / "1", self.settings(1))

    def start_store(
        self,
        number: int,
        *more: str,
        config: Path | None = None,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> Process:
        settings = [*self._store_settings(number), *more]
        data = self._folder / str(number)
        own = {**variables, "WEIR_CLUSTER_SECRET": self._secret}
        store = self._stack.enter_context(
            launched(data, *settings, role="store", config=config, variables=own)
        )
        self.stores[number] = store
        return store

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Of the stores."""
        return {number: ("127.0.0.1", port) for number, port in self._ports.items()}

    def start_gateway(
        self,
        name: str,
        *settings: str,
        secret: str | None = None,
        config: Path | None = None,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> Process:
        """One that does not serve before the stores can be reached. `settings` win over those that
        are common to all, `secret` over the cluster's.
        """
        key_file = f"node.key_file={self._folder / 'secrets.key'}"
        own = {**variables, "WEIR_CLUSTER_SECRET": self._secret if secret is None else secret}
        return self._stack.enter_context(
            launched(
                self._folder / name,
                *self._settings(0),
                key_file,
                *self._common,
                *settings,
                role="gateway",
                config=config,
                variables=own,
            )
        )

    def join(self, number: int) -> None:
        """Have a store that runs let in, and wait until it votes everywhere."""
        asked = self.stores[number].api("POST", "/cluster/join", {"same_host": True})
        assert asked.status == 202, asked.body
        until(lambda: self._is_member(number), lambda: f"store {number} joins: {self.status()}")

    def _is_member(self, number: int) -> bool:
        nodes = {each["number"]: each["state"] for each in self.status()["nodes"]}
        return nodes.get(number) == "member"

    def status(self) -> Any:
        """As one of the stores that run says."""
        store = next(each for each in self.stores.values() if each.process.poll() is None)
        return store.api("GET", "/cluster").json

    def leaders(self) -> dict[int, int]:
        """Store by group; 0: none."""
        return {each["group"]: each["leader"] for each in self.status()["groups"]}

    def mend(self) -> None:
        """Start the stores that a test has ended, and have each lead a group again."""
        for number in STORES:
            store = self.stores.get(number)
            if store is None or store.process.poll() is not None:
                self.start_store(number)
                self.stores[number].serves()
        until(lambda: all(each["answers"] for each in self.status()["nodes"]), "all answer")
        if sorted(self.leaders().values()) != list(STORES):
            self.rebalance()
            until(lambda: sorted(self.leaders().values()) == list(STORES), "each leads a group")

    def rebalance(self) -> None:
        store = next(each for each in self.stores.values() if each.process.poll() is None)
        assert store.api("POST", "/cluster/rebalance", {}).status == 200


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Three stores that lead one group each, and two gateways that serve."""
    with contextlib.ExitStack() as stack:
        cluster = Cluster(folder, stack)
        cluster.found()
        for number in STORES:
            cluster.start_store(number)
        gateways = [cluster.start_gateway(name) for name in ("a", "b")]
        for store in cluster.stores.values():
            store.serves()
        until(lambda: set(cluster.leaders().values()) == {1}, "store 1 leads")
        refused = cluster.stores[2].api("POST", "/cluster/join", {})
        assert (refused.status, "--same-host" in refused.json["error"]["message"]) == (403, True)
        for number in STORES[1:]:
            cluster.join(number)
        cluster.rebalance()
        for gateway in gateways:
            gateway.serves()
        yield cluster, gateways


@contextlib.contextmanager
def gateways_of_one_store(
    folder: Path, *store_settings: str, gateway_settings: Sequence[str] = ()
) -> Iterator[list[Process]]:
    """One store and two gateways that serve."""
    with contextlib.ExitStack() as stack:
        cluster = Cluster(folder, stack)
        cluster.found()
        cluster.start_store(1, *store_settings)
        gateways = [cluster.start_gateway(name, *gateway_settings) for name in ("a", "b")]
        yield [gateway.serves() for gateway in gateways]
