"""What may be asked of the register: who joins, and who leaves. Pure; for the leader of group 0.

One store at a time joins or leaves: every other rule then sees the members as they are. But
where the number of replicas is set a store may join while another leaves, for that may wait for the
room which this one brings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from ..common.errors import Code, KernelError
from .messages import Admit
from .records import NodeRecord, NodeState


def admitted(
    records: Mapping[int, NodeRecord],
    asked: Admit,
    alive: Collection[int],
    data_groups: int,
    replicas: int = 0,
) -> NodeRecord | None:
    """The record to be written for a store that wants to belong to the cluster; None if it does
    already. `alive`: numbers of the stores that answer with the data directory they joined with;
    `replicas`: how many each data group is to have, 0: one in each store.

    Raises KernelError: INVALID_ARGUMENT (another number of data groups; a store to be replaced that
    is none), ALREADY_EXISTS (its number is another's, or it has a place already),
    NOT_ALLOWED (its host has a store, it is leaving, or it takes its own place and nobody's),
    IN_USE (another store is joining or leaving).
    """
    if asked.data_groups != data_groups:
        raise KernelError(
            Code.INVALID_ARGUMENT,
            f"the cluster has {data_groups} data groups, and the new store was made for "
            f"{asked.data_groups}: set node.cluster.data_groups={data_groups} and begin with an "
            "empty data directory",
        )
    known = records.get(asked.number)
    if known is not None and known.facts.store == asked.facts.store:
        return _again(records, known, asked)
    waits_for = (NodeState.JOINING,) if replicas else (NodeState.JOINING, NodeState.LEAVING)
    _one_at_a_time(records, asked.number, waits_for)
    _another_host(records, asked)
    if known is not None:
        if asked.number in alive:
            raise KernelError(
                Code.ALREADY_EXISTS,
                f"store {asked.number} answers with the data directory that it joined with: give "
                "the new store another number",
            )
        if asked.replaces in records and asked.replaces != asked.number:
            raise KernelError(
                Code.NOT_ALLOWED,
                f"store {asked.number} has a place in the cluster, which it takes with its new "
                "data directory: join without --replaces, or with a number that no store has",
            )
        return replace(known, state=NodeState.LEAVING, then=asked.facts)
    if asked.replaces and asked.replaces not in records:
        message = f"there is no store {asked.replaces} that could be replaced"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    return NodeRecord(asked.number, NodeState.JOINING, asked.facts, asked.replaces)


def _again(records: Mapping[int, NodeRecord], known: NodeRecord, asked: Admit) -> NodeRecord | None:
    """A store that belongs to the cluster says so again, perhaps at another address."""
    if known.state is NodeState.LEAVING:
        message = f"store {known.number} is leaving the cluster"
        raise KernelError(Code.NOT_ALLOWED, message)
    if asked.replaces in records and (known.state, known.replaces) != (
        NodeState.JOINING,
        asked.replaces,
    ):
        raise KernelError(
            Code.ALREADY_EXISTS,
            f"store {known.number} belongs to the cluster already, and takes nobody's place: have "
            f"store {asked.replaces} leave with `weir cluster remove {asked.replaces}`",
        )
    if known.facts == asked.facts:
        return None
    if known.facts.label != asked.facts.label:
        _another_host(records, asked)
    return replace(known, facts=asked.facts)


def _one_at_a_time(
    records: Mapping[int, NodeRecord],
    number: int,
    states: Collection[NodeState] = (NodeState.JOINING, NodeState.LEAVING),
) -> None:
    for each in records.values():
        if each.state in states and each.number != number:
            raise KernelError(
                Code.IN_USE,
                f"store {each.number} is {each.state} just now: one at a time. `weir cluster "
                "status` shows what it waits for; ask again once it is done",
            )


def _another_host(records: Mapping[int, NodeRecord], asked: Admit) -> None:
    if asked.same_host:
        return
    for each in records.values():
        stays = each.number not in {asked.number, asked.replaces}
        if stays and each.facts.label == asked.facts.label:
            raise KernelError(
                Code.NOT_ALLOWED,
                f"store {each.number} is on host {each.facts.label!r} too: what ends one may end "
                "both. Name the hosts apart with node.cluster.host, or say --same-host",
            )


def dismissed(
    records: Mapping[int, NodeRecord], number: int, alive: Collection[int]
) -> NodeRecord | None:
    """The record to be written for a store that is to leave; None if it is leaving already.

    Raises KernelError: NOT_FOUND, IN_USE (another one is joining or leaving), NOT_ALLOWED (it is
    the last), UNAVAILABLE (of those that stay, too few answer).
    """
    known = records.get(number)
    if known is None:
        raise KernelError(Code.NOT_FOUND, f"there is no store {number} in the cluster")
    if known.state is NodeState.LEAVING and known.then is None:
        return None
    _one_at_a_time(records, number)
    stay = {each for each, record in records.items() if record.state is NodeState.MEMBER}
    stay.discard(number)
    if not stay:
        message = f"store {number} is the only one that has the data"
        raise KernelError(Code.NOT_ALLOWED, message)
    answering = stay & set(alive)
    if len(answering) <= len(stay) // 2:
        silent = ", ".join(map(str, sorted(stay - answering)))
        raise KernelError(
            Code.UNAVAILABLE,
            f"without store {number} the cluster would lose its majority: of those that stay, "
            f"these do not answer: {silent}",
        )
    return replace(known, state=NodeState.LEAVING, then=None)
