"""Clusters as sides of a comparison: each many processes on loopback, behind one address."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.peers import Broker, BrokerFailed, Erlang, Ours, RabbitMQ
from gateway import __version__
from tests.gateway.cluster import STORES, Cluster, until

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA_GROUPS = 4
RABBITMQ_NODES = 3
FIVE = (1, 2, 3, 4, 5)
CALM_S = 5.0
"""Without a move: the manager looks every two seconds."""


class Stores(Cluster):
    """Stores with the default timeouts."""

    def __init__(
        self,
        folder: Path,
        stack: contextlib.ExitStack,
        groups: int,
        numbers: Sequence[int] = STORES,
        replicas: int = 0,
    ) -> None:
        """`replicas`: of each group; 0: every store has all."""
        super().__init__(folder, stack, stores=numbers)
        self._numbers, self._groups, self._replicas = numbers, groups, replicas

    def _settings(self, number: int) -> list[str]:
        return [each for each in super()._settings(number) if "election_timeout" not in each]

    def _store_settings(self, number: int) -> list[str]:
        own = {
            "node.cluster.data_groups": str(self._groups),
            "node.cluster.replicas": str(self._replicas),
        }
        given = (each for each in super()._store_settings(number) if each.split("=")[0] not in own)
        return [*given, *(f"{name}={value}" for name, value in own.items())]

    def form(self, count: int = len(STORES)) -> None:
        """Start so many; the others join the first."""
        self.found()
        for number in self._numbers[:count]:
            self.start_store(number)
        for store in self.stores.values():
            store.serves()
        until(lambda: set(self.leaders().values()) == {1}, "store 1 leads")
        for number in self._numbers[1:count]:
            self.join(number)
        if self._replicas:
            self._until_calm()
        self.rebalance()

    def _until_calm(self) -> None:
        """Each group for data has its replicas, and none moves."""
        since = time.monotonic()

        def calm() -> bool:
            nonlocal since
            groups = [each for each in self.status()["groups"] if each["group"]]
            voters = [sum(1 for one in each["replicas"] if one["voter"]) for each in groups]
            whole = set(voters) == {self._replicas}
            if not whole or any(each["moving"] or each["short"] for each in groups):
                since = time.monotonic()
            return time.monotonic() - since > CALM_S

        until(calm, lambda: f"nothing moves any more: {self.status()}")


class WeirCluster(Broker):
    """Stores, and one gateway that clients connect to."""

    product = "weir"
    name = "3 stores + gateway"
    numbers: Sequence[int] = STORES
    replicas = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = contextlib.ExitStack()
        self._pids: list[int] = []

    @classmethod
    def found(cls, folder: Path, _ours: Ours) -> Self | None:
        return cls(folder)

    @property
    def pids(self) -> list[int]:
        return self._pids

    def start(self) -> None:
        """Found the cluster, have it formed, start its gateway. Raises BrokerFailed."""
        try:
            cluster = Stores(self.folder, self._stack, DATA_GROUPS, self.numbers, self.replicas)
            cluster.form(len(self.numbers))
            gateway = cluster.start_gateway("gateway").serves()
        except AssertionError as error:
            self.stop()
            raise BrokerFailed(f"{self.name}: {error}") from error
        self._pids = [each.process.pid for each in (*cluster.stores.values(), gateway)]
        self.port = gateway.listeners["amqp.tcp"]

    def stop(self) -> None:
        """Kill its processes: what they hold is removed with the folder."""
        self._stack.close()

    def settings(self) -> str:
        replicas = f", {self.replicas} replicas of each" if self.replicas else ""
        stores = len(self.numbers)
        return f"{stores} `weir store`, 1 `weir gateway`, {DATA_GROUPS} data groups{replicas}"

    def version(self) -> str:
        return f"weir {__version__}"


class WeirApart(WeirCluster):
    """One store, and its gateway as a process of its own."""

    name = "store + gateway"
    numbers = (1,)


class WeirFive(WeirCluster):
    """Five stores of which three have each group."""

    name = "5 stores, 3 replicas + gateway"
    numbers = FIVE
    replicas = 3


class RabbitmqCluster(Broker):
    """Three nodes; clients connect to the first, where the leaders of their queues are, too."""

    product = "rabbitmq"
    name = "RabbitMQ, 3 nodes"

    def __init__(self, folder: Path, server: Path) -> None:
        super().__init__(folder)
        self._erlang = Erlang()
        self._nodes = [
            RabbitMQ(folder / str(number), server, self._erlang) for number in range(RABBITMQ_NODES)
        ]
        for node in self._nodes:
            node.join([each.node for each in self._nodes])
        self.port = self._nodes[0].port

    @classmethod
    def found(cls, folder: Path, _ours: Ours) -> Self | None:
        server = RabbitMQ.find()
        return cls(folder, server) if server is not None else None

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._nodes]

    def start(self) -> None:
        """Start every node, and see that they have found each other. Raises BrokerFailed."""
        for node in self._nodes:
            node.start()
        status = json.loads(self._nodes[0].ask("cluster_status", "--formatter", "json"))
        if len(status["running_nodes"]) != len(self._nodes):
            raise BrokerFailed(f"RabbitMQ's nodes are {', '.join(status['running_nodes'])}")

    def stop(self) -> None:
        for node in reversed(self._nodes):
            node.stop()
        self._erlang.close()

    def settings(self) -> str:
        return f"{self._nodes[0].settings()}, quorum queues"

    def version(self) -> str:
        return self._nodes[0].version()
