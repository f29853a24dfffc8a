"""Which stores a store takes for its peers, before and after it knows of group 0.

    DATA/cluster.json    {"cluster", "number", "founder", "known": [[number, state, facts, ..], ..]}

The file says which store of which cluster the directory is, and holds a copy of the register, so
that after a restart nobody is let in whom the cluster knows better than this store does yet.

Rules of admission, for both ends of a connection:

- who is not in the register is not let in; a store that knows of no register yet (it has just been
  made) lets in whoever has the secret, and is itself let in by nobody before it is in theirs;
- who does not understand a feature of the log that is on is not let in (ADR 26);
- a store that was restored from a cut of the cluster lets in those that were cut with it only if
  they were restored with it: one that goes on with what it had would have acknowledged and voted
  for what the others have never seen (ADR 34);
- a number comes with the data directory that it was admitted with. Another one may have forgotten
  what it voted for, or acknowledged: it is a new store, and has to join as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ..common import feature_levels
from ..common.errors import UNDECODABLE, Code, KernelError
from ..common.ports import Disk
from ..log.format.files import read_all, replace_file
from ..rpc.handshake import Hello
from .records import NodeRecord, read

FILE = "cluster.json"

Address = tuple[str, int]


class Restored(msgspec.Struct, frozen=True):
    """What makes a restored store: which others were restored with it."""

    timeline: str
    """A word that all who were restored together have, and nobody else."""
    stores: list[str]
    """Ids of the data directories of all stores that belonged to the cluster then."""
    elsewhere: dict[int, tuple[Address, Address]] = {}
    """By number: where a store was then, and where it is now. It holds until the register says
    something else."""


class Home(msgspec.Struct, frozen=True):
    """Where this store belongs: the content of its membership file."""

    cluster: str
    number: int
    founder: bool = False
    """The cluster began with this store alone."""
    known: list[NodeRecord] = []
    restored: Restored | None = None


def read_home(disk: Disk) -> Home | None:
    """Whose directory it is; None if no cluster's. KernelError INVALID_ARGUMENT if the file is not
    ours.
    """
    content = read_all(disk, FILE)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content.rstrip(b"\0"), type=Home)
    except UNDECODABLE as error:
        message = f"{FILE} does not say which store of which cluster this is: {error}"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None


def write_home(disk: Disk, home: Home) -> None:
    """Durably replace the file. Blocking; OSError."""
    replace_file(disk, FILE, msgspec.json.format(msgspec.json.encode(home)) + b"\n")


class Roster:
    """The register as one store knows it."""

    def __init__(self, home: Home, store: str, peers: Mapping[int, Address]) -> None:
        """`store`: id of its data directory; `peers`: addresses given by the operator."""
        self.cluster = home.cluster
        self.number = home.number
        self.store = store
        self.given = dict(peers)
        """Where stores are, as the operator says: who is not where the register says may be there.
        """
        self._founder = home.founder
        self._restored = home.restored
        self.records = {each.number: each for each in home.known}
        self.versions: dict[int, int] = {}
        self.level: Callable[[], int] = lambda: 0
        """The level of the log's features that is on, as this store knows. Set by who opens it."""
        self.refusals: dict[int, str] = {}
        """Why a store was not let in lately, by number."""

    @property
    def timeline(self) -> str:
        """See `Restored`; empty: it never was."""
        return self._restored.timeline if self._restored is not None else ""

    @property
    def own(self) -> NodeRecord | None:
        """The record of this store, unless it is of another data directory."""
        record = self.records.get(self.number)
        return record if record is not None and record.facts.store == self.store else None

    def home(self) -> Home:
        """What the file should say."""
        known = list(self.records.values())
        return Home(self.cluster, self.number, self._founder, known, self._restored)

    def take(self, records: Mapping[str, tuple[int, bytes]]) -> bool:
        """The metadata records as this store has applied them; whether anything is new. None at
        all: group 0 has not come here yet, and what the file says holds on.
        """
        found = read(records)
        if not found:
            return False
        self.versions = {number: version for number, (version, _) in found.items()}
        fresh = {number: record for number, (_, record) in found.items()}
        if fresh == self.records:
            return False
        self.records = fresh
        return True

    def addresses(self) -> dict[int, Address]:
        """Where each store is: as the register says, or else the operator."""
        if not self.records:
            return dict(self.given)
        found = {n: (each.facts.host, each.facts.port) for n, each in self.records.items()}
        for number, (was, now) in self._restored.elsewhere.items() if self._restored else ():
            if found.get(number) == was:
                found[number] = now
        return found

    def admit(self, peer: Hello) -> str | None:
        """Why a store is not let in; None if it is."""
        reason = self._refusal(peer)
        if reason is None:
            self.refusals.pop(peer.node, None)
        elif peer.node in self.records or peer.node in self.given:
            self.refusals[peer.node] = reason
        return reason

    def admit_gateway(self, peer: Hello) -> str | None:
        """Why a process without a store is not let in."""
        if peer.cluster != self.cluster:
            return self._foreign(peer)
        who = f"store {peer.node}" if peer.node else "the gateway"
        return feature_levels.refusal(who, peer.understands, self.level())

    def _foreign(self, peer: Hello) -> str:
        return f"this is cluster {self.cluster!r}, not {peer.cluster[:64]!r}"

    def _refusal(self, peer: Hello) -> str | None:
        if peer.cluster != self.cluster:
            return self._foreign(peer)
        if peer.node == self.number:
            return f"this is store {self.number} itself"
        reason = feature_levels.refusal(f"store {peer.node}", peer.understands, self.level())
        if reason is not None or not self.records:
            return reason
        record = self.records.get(peer.node)
        if record is None:
            return (
                f"store {peer.node} does not belong to the cluster (any more): run "
                "`weir cluster join` on it"
            )
        if record.facts.store != peer.store:
            return (
                f"store {peer.node} comes with another data directory than the one it joined with, "
                "so that it may have forgotten its votes: run `weir cluster join` on it to have it "
                "taken in anew"
            )
        return self._of_another_time(peer)

    def _of_another_time(self, peer: Hello) -> str | None:
        restored = self._restored
        if restored is None or peer.store not in restored.stores:
            return None
        if peer.timeline == restored.timeline:
            return None
        return (
            f"store {peer.node} was not restored with this one: what it goes on with is of "
            "another time. Restore all stores of a cut with one --timeline"
        )
