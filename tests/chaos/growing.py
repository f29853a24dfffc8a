"""A cluster that changes while it is used: five stores, three replicas of each group.

Beside faults it suffers changes that an operator asks for: a store joins and takes its share; one
gives everything away and leaves; topics are resized and spread; what is hot moves; groups are
added. Any of them may have a fault in its middle (`Round.during`). What cannot be resized is asked
for as well, and has to be refused.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.chaos.clients.lanes import LANES, Lane
from tests.chaos.plan import CHANGES, Kind, Round
from tests.chaos.processes import ChaosError, Denied, Server, until
from tests.chaos.site import HEAL_SECONDS, Cluster

REPLICAS = 3
FOUNDING_GROUPS = 8
GROUPS_IN_ALL = 40
GROUPS_ADDED = 2
"""By one change."""

SPARE_STORES = 8
MIDDLE_SECONDS = 0.4
"""From the beginning of a change until the fault in its middle."""

LOAD_SECONDS = 1.0
"""Between two changes of one topic."""

SHARE_SECONDS = 400
"""For a store to take or give a fifth of all replicas on a machine that has other work."""

SIZES = (16, 4)
OFF_MOST = 0.1
"""How far a store may be off its share of the bytes."""

FILLER = "chaos-filler"
FILLER_BYTES = 16_384
FILLER_A_QUEUE = 24


class Growing(Cluster):
    """Five stores and two gateways; stores that join have the numbers behind."""

    data_groups = FOUNDING_GROUPS
    names = tuple(f"store{number}" for number in range(1, 6 + SPARE_STORES))
    begins_with = 5
    groups_in_all = GROUPS_IN_ALL
    calm_seconds = 5.0
    """Without a move: the manager looks every two seconds."""

    def __init__(self, folder: Path, election_timeout_ms: int, lanes: tuple[str, ...] = ()) -> None:
        """`lanes`: whose topics are changed; none: all."""
        super().__init__(folder, election_timeout_ms)
        self._lanes = lanes or tuple(LANES)
        self._gone: list[Server] = []

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """No full disk: a store of this cluster may leave with it."""
        return tuple(kind for kind in Kind if kind is not Kind.FULL_DISK)

    # --- Life -------------------------------------------------------------------------------

    def start(self) -> None:
        """As any cluster; then there are more groups, and what is stored evenly in them."""
        super().start()
        self._add_groups(self.groups_in_all - self.data_groups)
        self._ask(self.stores, "POST", "/cluster/rebalance", {})

    def _is_whole(self) -> bool:
        """Whether nothing moves or lacks anything, and each store has its part."""
        status = self._status()
        groups = status["groups"]
        return (
            len(groups) == self.groups
            and not any(each["moving"] or each["short"] for each in groups)
            and set(self._held(status)) == self.members
        )

    def _held(self, status: Any) -> Counter[int]:
        """Replicas of data groups by store."""
        return Counter(
            replica["node"]
            for each in status["groups"]
            for replica in each["replicas"]
            if each["group"] and replica["voter"]
        )

    def _until_calm(self, what: str, condition: Callable[[Any], bool] = lambda _: True) -> None:
        """Wait until nothing moves for a while and a condition of the status holds. ChaosError."""
        since = time.monotonic()

        def calm() -> bool:
            nonlocal since
            status = self._status()
            groups = status["groups"]
            moves = any(each["moving"] or each["short"] for each in groups)
            if moves or len(groups) != self.groups or not condition(status):
                since = time.monotonic()
            return time.monotonic() - since > self.calm_seconds

        until(calm, SHARE_SECONDS, what)

    def _ask(self, servers: list[Server], method: str, path: str, body: Any = None) -> Any:
        """Ask, again while nobody can tell, one server after the other. Denied; ChaosError."""
        ends = time.monotonic() + HEAL_SECONDS
        for turn in range(10_000):
            server = servers[turn % len(servers)]
            try:
                return server.api(method, path, body, seconds=30)
            except Denied:
                raise
            except ChaosError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)
        raise AssertionError("time stands still")

    # --- Changes ----------------------------------------------------------------------------

    def strike(self, fault: Round) -> str:
        """Make the fault or the change; a change may have a fault in its middle."""
        if fault.kind not in CHANGES:
            return super().strike(fault)
        told: list[str] = []
        problems: list[Exception] = []

        def change() -> None:
            try:
                told.append(self._change(fault))
            except Exception as error:  # noqa: BLE001 - whatever it is, the run is told of it
                problems.append(error)

        began = time.monotonic()
        changing = threading.Thread(target=change)
        changing.start()
        try:
            if fault.during is not None:
                time.sleep(MIDDLE_SECONDS)
                struck = super().strike(replace(fault, kind=fault.during, during=None))
                told.append(f"struck: {struck}")
        finally:
            changing.join()
        if problems:
            raise problems[0]
        for server in self._gone:
            server.kill()
        self._gone.clear()
        return f"{', '.join(told)}; took {time.monotonic() - began:.1f} s"

    def _change(self, asked: Round) -> str:
        match asked.kind:
            case Kind.ADD_STORE:
                return self._add_store()
            case Kind.REMOVE_STORE:
                return self._remove_store(asked.pick)
            case Kind.RESIZE:
                return self._resize(SIZES, spread=False)
            case Kind.SPREAD:
                return self._resize(SIZES[-1:], spread=True)
            case Kind.MOVE_HOT:
                return self._move_hot(asked.pick)
        self._add_groups(GROUPS_ADDED)
        return f"{self.groups - 1} groups"

    def _add_store(self) -> str:
        """The next store is started, joins and takes its share."""
        began = time.monotonic()
        number = next(n for n in range(1, len(self.names) + 1) if self.all_stores[n - 1].is_new)
        server = self.all_stores[number - 1]
        server.begin()
        self.network.know({each.name: each.pid for each in (*self.servers, server) if each.runs})
        server.wait()
        self._ask([server], "POST", "/cluster/join", {"replaces": 0, "same_host": True})
        until(lambda: self._is_member(number), HEAL_SECONDS, f"store {number} joins")
        joined = time.monotonic()
        self.members.add(number)
        self._introduce()
        share = (self.groups - 1) * REPLICAS / len(self.members)
        self._until_calm(
            f"{server.name} has its share",
            lambda status: self._held(status)[number] >= (1 - OFF_MOST) * share - 1,
        )
        ended = time.monotonic() - self.calm_seconds
        held = self._held(self._status())[number]
        return (
            f"{server.name} belongs to it after {joined - began:.1f} s, "
            f"and has its {held} replicas after {ended - joined:.1f} s more"
        )

    def _remove_store(self, pick: int) -> str:
        """One of them gives everything away; its process ends."""
        number = sorted(self.members)[pick % len(self.members)]
        if len(self.members) <= REPLICAS:
            return "nobody may leave: as many stores as replicas"
        server = self.all_stores[number - 1]
        others = [each for each in self.stores if each is not server]
        held = self._held(self._status())[number]

        def gone() -> bool:
            for each in others:
                if each.runs:
                    try:
                        known = each.api("GET", "/cluster", seconds=3)["nodes"]
                    except ChaosError:
                        continue
                    return bool(known) and all(n["number"] != number for n in known)
            return False

        self._ask(others, "DELETE", f"/cluster/stores/{number}")
        until(gone, SHARE_SECONDS, f"{server.name} has left")
        self.members.discard(number)
        self._gone.append(server)
        return f"{server.name} gave {held} replicas away"

    def _topics(self) -> list[Lane]:
        return [LANES[name] for name in self._lanes]

    def _resize(self, sizes: tuple[int, ...], *, spread: bool) -> str:
        """Each topic that may be is resized while it is used; the others have to be refused."""
        longest = 0.0
        for lane in self._topics():
            path = f"/topics/{quote(lane.topic, safe='')}/resize"
            for size in sizes:
                body = {"queues": size, "by_key": True, "spread": spread}
                began = time.monotonic()
                try:
                    found = self._ask(self.gateway_servers, "POST", path, body)
                except Denied as denied:
                    if lane.resizable:
                        raise ChaosError(f"refused: {denied}") from denied
                    break
                if not lane.resizable:
                    raise ChaosError(f"{lane.topic} was resized: that is to be refused")
                longest = max(longest, time.monotonic() - began)
                taking = [e for e in found["queues"] if not e["sealed"] and not e["once"]]
                if len(taking) != size:
                    raise ChaosError(f"{lane.topic} has {len(taking)} queues, not {size}")
                time.sleep(LOAD_SECONDS)
        return f"to {', '.join(map(str, sizes))} queues, the slowest in {longest:.2f} s"

    def _move_hot(self, pick: int) -> str:
        """The group with the first queue of a topic gets another leader, then the former one's
        replica goes to a store that had none.
        """
        lanes = [lane for lane in self._topics() if lane.topic_type]
        topic = lanes[pick % len(lanes)].topic
        queues = self._ask(self.gateway_servers, "GET", f"/topics/{topic}")["queues"]
        group = next(each["raft_group"] for each in queues if not each["sealed"])
        ends = time.monotonic() + HEAL_SECONDS
        while True:
            try:
                told = self._move(group)
                break
            except (Denied, ValueError):
                # It moves already, or is between two leaders.
                if time.monotonic() > ends:
                    raise
                time.sleep(0.5)
        self._until_calm(f"group {group} is in its place")
        return f"group {group} of {topic} {told}"

    def _move(self, group: int) -> str:
        """What was asked for. Denied or ValueError: not now."""
        path = f"/cluster/groups/{group}"
        leader, voters = self._led(group)
        to = min(voters - {leader})
        self._ask(self.stores, "POST", f"{path}/transfer", {"to": to})
        leader, voters = self._led(group)
        gone, new = min(voters - {leader}), min(self.members - voters)
        self._ask(self.stores, "POST", f"{path}/move", {"to": new, "from": gone, "same_host": True})
        return f"is led by store {to}, and went from store {gone} to {new}"

    def _led(self, group: int) -> tuple[int, set[int]]:
        """Who leads a group, and who votes in it."""
        each = next(each for each in self._status()["groups"] if each["group"] == group)
        return each["leader"], {one["node"] for one in each["replicas"] if one["voter"]}

    def _add_groups(self, count: int) -> None:
        """Asked again only if it is not known by then: it would be more of them."""
        wanted = self.groups + count - 1 - self.data_groups

        def known() -> bool:
            if len(self._status().get("added", ())) >= wanted:
                return True
            try:
                self.stores[0].api("POST", "/cluster/groups", {"count": count}, seconds=30)
            except Denied:
                raise
            except ChaosError:
                time.sleep(1.0)
                return False
            return True

        until(known, HEAL_SECONDS, f"{count} groups are added")
        self.groups += count
        self._until_calm(
            f"{count} groups have their replicas",
            lambda status: (
                len(status["added"]) == wanted
                and not any(each["waits"] for each in status["added"])
            ),
        )

    # --- Evenness ---------------------------------------------------------------------------

    def fill(self) -> None:
        """Store as much in each group."""
        import pika

        body = {"name": FILLER, "type": "work", "queues": self.groups - 1}
        self._ask(self.gateway_servers, "POST", "/topics", body)
        url = f"amqp://guest:guest@127.0.0.1:{self.gateways[0]['amqp']}/%2f?heartbeat=0"
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.confirm_delivery()
        durable = pika.BasicProperties(delivery_mode=2)
        for _ in range(FILLER_A_QUEUE * (self.groups - 1)):
            channel.basic_publish("", FILLER, bytes(FILLER_BYTES), durable)
        connection.close()

    def uneven(self, say: Callable[[str], None]) -> str:
        """Have as much in each group, wait for calm, and see what each store holds."""
        self.fill()
        self._until_calm("nothing moves any more")
        live = {each.name: each.figure("weir_store_live_bytes") for each in self.stores}
        held = self._held(self._status())
        mean = sum(live.values()) / len(live)
        replicas = [held[number] for number in sorted(self.members)]
        told = ", ".join(
            f"{name} {each / 1e6:.1f} MB ({each / mean - 1:+.1%}, {count} replicas)"
            for (name, each), count in zip(live.items(), replicas, strict=True)
        )
        say(f"each store holds (beside an even share): {told}")
        off = [name for name, each in live.items() if abs(each / mean - 1) > OFF_MOST]
        return f"{', '.join(off)}: {told}" if off else ""
