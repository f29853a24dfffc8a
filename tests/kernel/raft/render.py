"""Text of messages, entries and states, as etcd's interaction files write them."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.raft import messages
from kernel.raft.members import configuration
from kernel.raft.members.progress import Progress
from kernel.raft.messages import Entry, Membership, RaftMessage, Snapshot

KINDS = (
    "MsgProp",
    "MsgApp",
    "MsgAppResp",
    "MsgPreVote",
    "MsgPreVoteResp",
    "MsgVote",
    "MsgVoteResp",
    "MsgSnap",
    "MsgHeartbeat",
    "MsgHeartbeatResp",
    "MsgTransferLeader",
    "MsgTimeoutNow",
    "MsgReadIndex",
    "MsgReadIndexResp",
)
ROLES = ("StateFollower", "StatePreCandidate", "StateCandidate", "StateLeader")
STATES = ("StateProbe", "StateReplicate", "StateSnapshot")
LETTERS = "vlru"
V1 = b"v1"
"""Context of a change that a file marks as of the older form."""


def entry_text(entry: Entry) -> str:
    head = f"{entry.term}/{entry.index}"
    if entry.kind != messages.CONFIGURATION:
        return f'{head} EntryNormal "{_quoted(entry.body)}"'
    change = configuration.decode(entry.body)
    kind = "EntryConfChange" if change.context == V1 else "EntryConfChangeV2"
    changes = [f"{LETTERS[each.kind]}{each.node}" for each in change.changes]
    return " ".join([head, kind, *changes])


def _quoted(body: bytes) -> str:
    return body.decode().replace("\\", "\\\\").replace('"', '\\"')


def message_text(message: RaftMessage) -> str:
    """One message; several lines if it has several entries or a snapshot."""
    log = f"{message.log_term}/{message.index}"
    if message.kind in (messages.PREVOTE_ANSWER, messages.VOTE_ANSWER):
        log = "0/0"
    head = f"{message.sender}->{message.to} {KINDS[message.kind]} Term:{message.term} Log:{log}"
    if message.reject:
        head += f" Rejected (Hint: {message.hint})"
    if message.commit:
        head += f" Commit:{message.commit}"
    head += entries_text(message.entries)
    if message.snapshot is not None:
        head += f"\n  Snapshot: {snapshot_text(message.snapshot)}"
    return head


def entries_text(entries: Sequence[Entry]) -> str:
    if not entries:
        return ""
    if len(entries) == 1:
        return f" Entries:[{entry_text(entries[0])}]"
    return " Entries:[\n" + "".join(f"  {entry_text(each)}\n" for each in entries) + "]"


def snapshot_text(snapshot: Snapshot) -> str:
    return (
        f"Index:{snapshot.index} Term:{snapshot.term}"
        f" ConfState:{membership_text(snapshot.membership)}"
    )


def membership_text(members: Membership) -> str:
    def ids(nodes: tuple[int, ...]) -> str:
        return "[" + " ".join(map(str, nodes)) + "]"

    return (
        f"Voters:{ids(members.voters)} VotersOutgoing:{ids(members.voters_outgoing)}"
        f" Learners:{ids(members.learners)} LearnersNext:{ids(members.learners_next)}"
        f" AutoLeave:{str(members.auto_leave).lower()}"
    )


def progress_text(progress: Progress) -> str:
    text = f"{STATES[progress.state]} match={progress.match} next={progress.next}"
    if progress.learner:
        text += " learner"
    if progress.is_paused:
        text += " paused"
    if progress.pending_snapshot:
        text += f" pendingSnap={progress.pending_snapshot}"
    if not progress.recent_active:
        text += " inactive"
    if len(progress.inflights):
        text += f" inflight={len(progress.inflights)}"
        text += "[full]" if progress.inflights.full else ""
    return text
