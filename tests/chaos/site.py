"""What a run is done to: a cluster of three stores and two gateways, or one node (`growing`: one of
five stores, which changes while it runs).

A site says which faults it can suffer, makes them (`strike`), and makes all well again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.plan import CHANGES, Kind, Round
from tests.chaos.processes import ChaosError, NetworkProcess, Server, until
from tests.free_ports import free_ports

PROTOCOLS = {
    "sqs": "protocols.sqs.listeners.http",
    "amqp": "protocols.amqp.listeners.tcp",
    "mqtt": "protocols.mqtt.listeners.tcp",
    "rocketmq": "protocols.rocketmq.listeners.grpc",
}

DATA_GROUPS = 2
STORES = ("store1", "store2", "store3")
GATEWAYS = ("gateway1", "gateway2")

HEAL_SECONDS = 90
SYNC_ERROR_SECONDS = 20
EXIT_STORAGE = 74
TMPFS_BYTES = 640 * 1024 * 1024
"""Of a store whose disk gets full: some segments of 64 MiB and the next ones prepared."""


def listeners(ports: dict[str, int]) -> dict[str, object]:
    """Settings that open the listeners of the load's protocols at ports of their own."""
    from gateway.config.loading import load

    given: dict[str, object] = {"node.admin.port": 0}
    for path in load(environ={}).settings.open_listeners():
        given[".".join((*path, "port"))] = 0
    given |= {f"{PROTOCOLS[name]}.port": port for name, port in ports.items()}
    return given


class Node:
    """`weir serve`: gateway and store in one process."""

    gateways: list[dict[str, int]]
    data_groups = DATA_GROUPS
    kinds = (Kind.KILL_LEADER, Kind.PAUSE_LEADER, Kind.SYNC_ERROR_LEADER)

    def __init__(self, folder: Path, election_timeout_ms: int) -> None:
        ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self.gateways = [ports]
        self.server = Server("node", "serve", folder, listeners(ports))

    def start(self) -> None:
        self.server.begin()
        self.server.wait()

    @property
    def admin(self) -> Server:
        """Who makes topics."""
        return self.server

    @property
    def servers(self) -> list[Server]:
        return [self.server]

    def stop(self) -> None:
        self.server.kill()

    def strike(self, fault: Round) -> str:
        """Make the fault and mend it; what was done."""
        match fault.kind:
            case Kind.KILL_LEADER:
                self.server.kill()
            case Kind.PAUSE_LEADER:
                self.server.pause()
                time.sleep(fault.seconds)
                self.server.go_on()
                return "node paused"
            case _:
                fail_syncs(self.server)
        self.start()
        return "node ended and started again"

    def settle(self) -> None:
        """Wait until it is well."""

    def uneven(self, _say: Callable[[str], None]) -> str:
        """It holds everything."""
        return ""


def fail_syncs(server: Server) -> None:
    """Have fdatasync fail until the process has ended, as it must, with the code for that."""
    server.broken_disk.touch()
    try:
        code = server.wait_for_end(SYNC_ERROR_SECONDS)
    finally:
        server.broken_disk.unlink()
    if code != EXIT_STORAGE:
        raise ChaosError(f"{server.name} ended with {code} after EIO:\n{server.tail()}")


class Cluster:
    """Three stores and two gateways."""

    data_groups = DATA_GROUPS
    """With which it is founded."""
    names: Sequence[str] = STORES
    """Of all stores that there may be."""
    begins_with = len(STORES)
    """So many of them."""

    def __init__(self, folder: Path, election_timeout_ms: int) -> None:
        backs, fronts = free_ports(len(self.names)), free_ports(len(self.names))
        named = list(zip(self.names, fronts, backs, strict=True))
        self.network = NetworkProcess(folder, {name: (front, back) for name, front, back in named})
        first = fronts[: self.begins_with]
        peers = [f"{number}@127.0.0.1:{port}" for number, port in enumerate(first, 1)]
        cluster: dict[str, object] = {
            "node.cluster.election_timeout_ms": election_timeout_ms,
            "node.cluster.data_groups": self.data_groups,
            "node.admin.port": 0,
        }
        self.all_stores = [
            Server(
                name,
                "store",
                folder,
                cluster
                | {
                    "node.cluster.number": number,
                    "node.store.port": back,
                    "node.cluster.address": f"127.0.0.1:{front}",
                    "node.cluster.peers": ",".join(
                        peer for peer in peers if not peer.startswith(f"{number}@")
                    ),
                },
            )
            for number, (name, front, back) in enumerate(named, 1)
        ]
        self.members = set(range(1, self.begins_with + 1))
        """Numbers of the stores that belong to it."""
        self.groups = self.data_groups + 1
        """That there are by now."""
        self.gateways = []
        self.gateway_servers = []
        for name in GATEWAYS:
            ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
            self.gateways.append(ports)
            given = listeners(ports) | {
                "node.cluster.peers": ",".join(peers),
                "node.cluster.election_timeout_ms": election_timeout_ms,
            }
            self.gateway_servers.append(Server(name, "gateway", folder, given))
        self._mounted: list[Path] = []

    @property
    def kinds(self) -> tuple[Kind, ...]:
        faults = (kind for kind in Kind if kind not in CHANGES)
        return tuple(kind for kind in faults if kind is not Kind.FULL_DISK or can_mount())

    @property
    def stores(self) -> list[Server]:
        """Those that belong to it."""
        return [self.all_stores[number - 1] for number in sorted(self.members)]

    @property
    def servers(self) -> list[Server]:
        return [*self.stores, *self.gateway_servers]

    @property
    def admin(self) -> Server:
        return self.gateway_servers[0]

    def _begin(self, *servers: Server) -> None:
        """Start processes at once, and wait for all."""
        for server in servers:
            server.begin()
        self._introduce()
        for server in servers:
            server.wait()

    def _introduce(self) -> None:
        self.network.know({each.name: each.pid for each in self.servers if each.runs})

    # --- Life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the cluster, have all stores join, spread the leaders; gateways start meanwhile."""
        first, *others = self.stores
        found(first)
        self._begin(*self.servers)
        until(lambda: self._leaders() == [1] * self.groups, HEAL_SECONDS, "store 1 leads")
        for number, server in enumerate(others, 2):
            server.api("POST", "/cluster/join", {"replaces": 0, "same_host": True})
            until(lambda n=number: self._is_member(n), HEAL_SECONDS, f"store {number} joins")
        # A store that has joined gets its replicas behind that, and leads nothing before.
        until(self._is_whole, HEAL_SECONDS, "each group is in three stores")
        first.api("POST", "/cluster/rebalance", {})
        leading = min(self.begins_with, self.groups)
        until(lambda: len(set(self._leaders())) == leading, HEAL_SECONDS, "the leaders are spread")

    def stop(self) -> None:
        for server in (*self.all_stores, *self.gateway_servers):
            server.kill()
        self.network.kill()
        for path in self._mounted:
            subprocess.run(["umount", str(path)], check=False)

    # --- What it looks like -----------------------------------------------------------------

    def _status(self) -> Any:
        """What any store that answers says."""
        for server in self.stores:
            if server.runs:
                with contextlib.suppress(ChaosError):
                    return server.api("GET", "/cluster", seconds=3)
        return {"groups": [], "nodes": []}

    def _is_whole(self) -> bool:
        """Whether every group has a voter in each of three stores."""
        groups = self._status()["groups"]
        voters = [sum(each["voter"] for each in group["replicas"]) for group in groups]
        return voters == [len(self.stores)] * self.groups

    def _leaders(self) -> list[int]:
        return [each["leader"] for each in self._status()["groups"]]

    def _is_member(self, number: int) -> bool:
        return any(
            each["number"] == number and each["state"] == "member"
            for each in self._status()["nodes"]
        )

    def settle(self) -> None:
        """Wait until every process runs, every store answers and every group has a leader."""

        def well() -> bool:
            status = self._status()
            return (
                {each["number"] for each in status["nodes"]} == self.members
                and all(each["answers"] for each in status["nodes"])
                and len(status["groups"]) == self.groups
                and all(each["leader"] for each in status["groups"])
            )

        until(well, HEAL_SECONDS, "all stores answer and all groups have leaders")

    def uneven(self, _say: Callable[[str], None]) -> str:
        """Which store holds too much or too little; each of three holds everything."""
        return ""

    def _leader(self, fault: Round) -> Server:
        number = 0

        def known() -> int:
            nonlocal number
            number = self._leaders()[fault.group : fault.group + 1][0]
            return number

        until(known, HEAL_SECONDS, f"group {fault.group} has a leader")
        return self.all_stores[number - 1]

    def _follower(self, fault: Round) -> Server:
        leader = self._leader(fault)
        others = [each for each in self.stores if each is not leader]
        return others[fault.pick % len(others)]

    def _gateway(self, fault: Round) -> Server:
        return self.gateway_servers[fault.pick % len(self.gateway_servers)]

    # --- Faults -----------------------------------------------------------------------------

    def strike(self, fault: Round) -> str:
        """Make the fault and mend it; what was done, and to whom."""
        kind = fault.kind
        if kind is Kind.ROLLING_RESTART:
            return self._roll()
        if kind is Kind.KILL_ALL:
            for server in self.servers:
                server.kill()
            self._begin(*self.servers)
            return "all killed and started again"
        if kind.name.startswith("CUT"):
            return self._cut(fault)
        victim = self._victim(fault)
        if kind.name.startswith("KILL"):
            victim.kill()
            time.sleep(min(fault.seconds, 2.0))
            self._begin(victim)
        elif kind.name.startswith("PAUSE"):
            victim.pause()
            time.sleep(fault.seconds)
            victim.go_on()
        elif kind.name.startswith("SYNC_ERROR"):
            fail_syncs(victim)
            self._begin(victim)
        else:
            self._give_lead(fault.group, victim)
            self._fill(victim, fault.seconds)
        return victim.name

    def _victim(self, fault: Round) -> Server:
        name = fault.kind.name
        if name.endswith("GATEWAY"):
            return self._gateway(fault)
        if fault.kind is Kind.FULL_DISK:
            return self.stores[-1]
        return self._leader(fault) if name.endswith("LEADER") else self._follower(fault)

    def _cut(self, fault: Round) -> str:
        leader = self._leader(fault).name
        if fault.kind in {Kind.CUT_STORES, Kind.CUT_STORES_ONE_WAY}:
            others = [each.name for each in self.stores if each.name != leader]
        else:
            others = [self._gateway(fault).name]
        directions = [(leader, other) for other in others]
        if not fault.kind.name.endswith("ONE_WAY"):
            directions += [(other, leader) for other in others]
        self.network.cut(*directions)
        time.sleep(fault.seconds)
        self.network.cut()
        return f"{leader} and {', '.join(others)}"

    def _roll(self) -> str:
        """SIGTERM, start, wait until well: one process after the other."""
        for server in self.servers:
            server.terminate()
            self._begin(server)
            self.settle()
        return ", ".join(each.name for each in self.servers)

    def _give_lead(self, group: int, server: Server) -> None:
        """Have a store lead a group."""
        number = self.all_stores.index(server) + 1
        if self._leaders()[group] != number:
            path = f"/cluster/groups/{group}/transfer"
            server.api("POST", path, {"to": number})
            until(lambda: self._leaders()[group] == number, HEAL_SECONDS, f"{server.name} leads")

    def _fill(self, server: Server, seconds: float) -> None:
        """Leave no byte on a store's own file system for a while."""
        ballast = server.data / "ballast"
        try:
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
            time.sleep(seconds)
        finally:
            ballast.unlink()

    def mount_small_disk(self) -> None:
        """Give the last store a small file system of its own, before it starts."""
        path = self.stores[-1].data
        path.mkdir(mode=0o700)
        options = f"size={TMPFS_BYTES},mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "weir-chaos", str(path)], check=True)
        self._mounted.append(path)


def found(first: Server) -> None:
    """`weir cluster init`."""
    from gateway.config.loading import load
    from gateway.serving.store_node import found_cluster

    assignments = [*first.flags[3::2], "node.role=store"]
    found_cluster(first.data, load(assignments=assignments, environ={}).settings)


def can_mount() -> bool:
    """Whether this process may mount a file system: tried, once."""
    global _MOUNTS  # noqa: PLW0603 - asked of the system once
    if _MOUNTS is None:
        _MOUNTS = _try_mount()
    return _MOUNTS


_MOUNTS: bool | None = None


def _try_mount() -> bool:
    import tempfile

    if os.geteuid():
        return False
    with tempfile.TemporaryDirectory() as folder:
        words = ["mount", "-t", "tmpfs", "-o", "size=65536", "weir-chaos", folder]
        try:
            subprocess.run(words, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", folder], check=True)
        return True
