"""Which handler serves which message in which role: the state machine as one table.

None: such a message says nothing to this role and is ignored.
"""

from __future__ import annotations

from typing import Final

from . import election, follower, leader, read_only
from .messages import MESSAGE_KINDS
from .state import Handlers

_CANDIDATE: Final[Handlers] = (
    follower.on_candidate_request,  # PROPOSE
    follower.on_append,  # APPEND
    None,  # APPEND_ANSWER
    election.on_vote,  # PREVOTE
    election.on_vote_answer,  # PREVOTE_ANSWER
    election.on_vote,  # VOTE
    election.on_vote_answer,  # VOTE_ANSWER
    follower.on_snapshot,  # SNAPSHOT
    follower.on_heartbeat,  # HEARTBEAT
    None,  # HEARTBEAT_ANSWER
    follower.on_candidate_request,  # TRANSFER
    None,  # TIMEOUT_NOW
    follower.on_candidate_request,  # READ_INDEX
    None,  # READ_INDEX_ANSWER
)

HANDLERS: Final[tuple[Handlers, ...]] = (
    (  # FOLLOWER
        follower.on_propose,  # PROPOSE
        follower.on_append,  # APPEND
        None,  # APPEND_ANSWER
        election.on_vote,  # PREVOTE
        election.learn_committed,  # PREVOTE_ANSWER
        election.on_vote,  # VOTE
        election.learn_committed,  # VOTE_ANSWER
        follower.on_snapshot,  # SNAPSHOT
        follower.on_heartbeat,  # HEARTBEAT
        None,  # HEARTBEAT_ANSWER
        follower.forward,  # TRANSFER
        follower.on_timeout_now,  # TIMEOUT_NOW
        follower.forward,  # READ_INDEX
        follower.on_read_index_answer,  # READ_INDEX_ANSWER
    ),
    _CANDIDATE,  # PRE_CANDIDATE
    _CANDIDATE,  # CANDIDATE
    (  # LEADER
        leader.on_propose,  # PROPOSE
        None,  # APPEND: there is one leader a term
        leader.on_append_answer,  # APPEND_ANSWER
        election.on_vote,  # PREVOTE
        None,  # PREVOTE_ANSWER
        election.on_vote,  # VOTE
        None,  # VOTE_ANSWER
        None,  # SNAPSHOT
        None,  # HEARTBEAT
        leader.on_heartbeat_answer,  # HEARTBEAT_ANSWER
        leader.on_transfer,  # TRANSFER
        None,  # TIMEOUT_NOW
        read_only.on_read_index,  # READ_INDEX
        None,  # READ_INDEX_ANSWER
    ),
)

assert all(len(row) == MESSAGE_KINDS for row in HANDLERS)
