"""Elections: campaigning, voting, counting."""

from __future__ import annotations

from . import messages
from .members.quorum import VOTE_LOST, VOTE_WON
from .messages import (
    FOLLOWER,
    LEADER,
    PRE_CANDIDATE,
    PREVOTE,
    PREVOTE_ANSWER,
    VOTE,
    VOTE_ANSWER,
    RaftMessage,
)
from .sending import broadcast
from .state import RaftState


def may_campaign(core: RaftState) -> bool:
    """Whether this node may become leader: a voter with its snapshot installed."""
    own = core.tracker.own
    return own is not None and not own.learner and core.log.snapshot is None


def _knows_members(core: RaftState) -> bool:
    """False while a change of membership is committed but not applied here: this node would count
    the votes by the wrong configuration.
    """
    log = core.log
    return not log.configurations or log.configurations[0] > log.committed


def hang_up(core: RaftState, *, forced: bool = False) -> bool:
    """The leader is given up (or asks for it, `forced`): campaign. False if this node cannot."""
    if core.role == LEADER or not may_campaign(core) or not _knows_members(core):
        return False
    if core.options.pre_vote and not forced:
        _campaign(core, PREVOTE, forced=False)
    else:
        _campaign(core, VOTE, forced=forced)
    return True


def _campaign(core: RaftState, kind: int, *, forced: bool) -> None:
    if kind == PREVOTE:
        core.become_pre_candidate()
        term, answer = core.term + 1, PREVOTE_ANSWER
    else:
        core.become_candidate()
        term, answer = core.term, VOTE_ANSWER
    log = core.log
    for progress in core.tracker.peers:
        if core.tracker.is_voter(progress.node):
            core.send(
                RaftMessage(
                    kind,
                    core.node,
                    progress.node,
                    term,
                    log.last_term,
                    log.last_index,
                    forced=forced,
                )
            )
    own = RaftMessage(answer, core.node, core.node, term)
    if kind == PREVOTE:
        on_vote_answer(core, own)
    else:
        # The vote for oneself counts once the term and it are on disk.
        core.own_vote = own


def renew(core: RaftState) -> bool:
    """A leader that has told another voter to campaign, in vain, begins a new term: the other may
    still do so, in spite of every lease, but only in the term that is over then. False if this node
    cannot.
    """
    if core.role != LEADER or not may_campaign(core) or not _knows_members(core):
        return False
    core.become_follower(core.term, 0)
    return hang_up(core, forced=True)


def abstain(core: RaftState, term: int) -> None:
    """Nobody gets this node's vote in any term up to this one: it votes for itself, and does not
    campaign. To be called of a follower.
    """
    if term > core.term:
        core.become_follower(term, 0)
    core.vote = core.node


def on_vote(core: RaftState, message: RaftMessage) -> None:
    """A candidate asks. Any role serves this, learners too: the candidate may know better than
    this node whether it is a voter. Not so a node that knows no member at all: either it is new and
    nobody's voter yet, or it has lost its disk, and with it the votes it gave.
    """
    if not core.tracker.progress:
        return
    may = (
        core.vote == message.sender
        or (not core.vote and not core.leader)
        or (message.kind == PREVOTE and message.term > core.term)
    )
    answer = PREVOTE_ANSWER if message.kind == PREVOTE else VOTE_ANSWER
    if may and core.log.is_up_to_date(message.index, message.log_term):
        # A pre-vote is granted for the term asked for, which this node has not reached.
        core.after_sync.append(RaftMessage(answer, core.node, message.sender, message.term))
        if message.kind == VOTE:
            core.election_elapsed = 0
            core.vote = message.sender
    else:
        _refuse(core, message, answer)


def _refuse(core: RaftState, message: RaftMessage, answer: int) -> None:
    """The candidate gets no vote, but hears how far this node knows the log to be committed, as far
    as the candidate's own goes: that may be news to it, of an end of a joint configuration above
    all. Who has the longest log may be a voter no more, and would else keep the others for ever
    from electing one of theirs.
    """
    log = core.log
    index = min(log.committed, message.index)
    term = max(log.term(index), 0)
    core.after_sync.append(
        RaftMessage(answer, core.node, message.sender, core.term, term, index, reject=True)
    )


def learn_committed(core: RaftState, message: RaftMessage) -> None:
    """A refusal, which may come late, names an entry that is committed: so is this log up to it, if
    it has the very same one. Who campaigns and learns of a change of members begins again, once
    that is applied.
    """
    log, index = core.log, message.index
    if message.reject and index > log.committed and log.term(index) == message.log_term:
        log.commit_to(index)
        if not _knows_members(core):
            core.become_follower(core.term, 0)


def on_vote_answer(core: RaftState, message: RaftMessage) -> None:
    """A voter has answered this candidate, or this node has voted for itself."""
    learn_committed(core, message)
    wanted = PREVOTE_ANSWER if core.role == PRE_CANDIDATE else VOTE_ANSWER
    if message.kind != wanted or core.role == FOLLOWER:
        return
    votes = core.tracker.votes
    votes.setdefault(message.sender, not message.reject)
    result = core.tracker.vote_result(votes)
    if result == VOTE_WON:
        if core.role == PRE_CANDIDATE:
            _campaign(core, VOTE, forced=False)
        elif core.node in votes:
            # Not before its own vote is on disk, although the others may be a majority: after a
            # crash it would win the same term with their votes once more, and give the log two
            # entries of one index and term.
            core.become_leader()
            broadcast(core)
    elif result == VOTE_LOST:
        core.become_follower(core.term, 0)


def other_term(core: RaftState, message: RaftMessage) -> bool:
    """Whether a message of another term is to be handled (then this node has taken it over
    unless it is about a pre-vote).
    """
    kind = message.kind
    if message.term > core.term:
        if kind in (messages.PREVOTE, messages.VOTE):
            leased = (
                core.options.check_quorum
                and core.leader
                and core.election_elapsed < core.options.election_ticks
            )
            if not message.forced and (leased or core.silent_ticks):
                return False
            if kind == messages.PREVOTE:
                return True
        elif kind == messages.PREVOTE_ANSWER and not message.reject:
            return True
        from_leader = kind in (messages.APPEND, messages.HEARTBEAT, messages.SNAPSHOT)
        core.become_follower(message.term, message.sender if from_leader else 0)
        return True
    options = core.options
    if kind in (messages.APPEND, messages.HEARTBEAT):
        if options.check_quorum or options.pre_vote:
            # A leader that was cut off must hear of the new term, also from a node that
            # grants it no vote.
            answer = RaftMessage(messages.APPEND_ANSWER, core.node, message.sender, core.term)
            core.after_sync.append(answer)
    elif kind == messages.PREVOTE:
        _refuse(core, message, messages.PREVOTE_ANSWER)
    return False
