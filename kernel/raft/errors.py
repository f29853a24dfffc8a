"""What a Raft core refuses, and why. All are ordinary: a driver answers, retries or counts them."""

from __future__ import annotations


class RaftError(Exception):
    """The core refuses what was asked; nothing has changed."""


class NotLeader(RaftError):
    """Only the leader may do this. `leader` is who leads as far as this node knows, 0: nobody."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"not the leader; the leader is {leader or 'unknown'}")
        self.leader = leader


class ProposalsFull(RaftError):
    """Too many bytes are proposed and not committed: wait for commits, then propose again."""


class TransferUnderWay(RaftError):
    """Leadership is being handed over: propose to the next leader."""


class ConfigurationRefused(RaftError):
    """The change of membership does not fit the configuration of now; the text says why."""


class ReadsFull(RaftError):
    """Too many read requests wait for their round: ask again later."""


class UnknownSender(RaftError):
    """An answer from a node that is not (any more) a member: to be dropped."""

    def __init__(self, node: int) -> None:
        super().__init__(f"an answer from node {node}, which is not a member")


class LogDamaged(RaftError):
    """What the leader says contradicts what this node has acknowledged as synced or committed: its
    disk has forgotten something, or two clusters were mixed. The replica must leave the vote
    (`Consensus.receive`).
    """
