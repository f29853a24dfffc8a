"""One simulated group a file: the commands of etcd's interaction files over our core.

The peer has one write-out step (`process-ready`), and with asynchronous writes two threads that
take its parts. Log lines are left out: their wording is the peer's. What differs by design:

* our core's answer of the disk is one call, `stable`; the peer's are messages to itself. They are
  printed as the peer's, and the last of them makes the call;
* a change of membership that does not fit is refused by an error; the peer appends an empty entry
  in its place, and so does this driver;
* a refused vote says what the voter knows to be committed, which the peer's does not: left out
  (`render.message_text`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernel.raft import messages
from kernel.raft.core import RaftCore
from kernel.raft.errors import ConfigurationRefused, NotLeader, RaftError, UnknownSender
from kernel.raft.members import configuration
from kernel.raft.members.configuration import Change, ConfigurationChange
from kernel.raft.messages import Entry, HardState, Membership, RaftMessage, Ready, Snapshot
from kernel.raft.options import RaftOptions

from . import render
from .datafile import Case
from .invariants import Invariants
from .memory import NOTHING, MemoryStorage

NO_LIMIT = 1 << 62
ELECTION_TICKS = 3
TRANSITIONS = {
    "": configuration.AUTO,
    "auto": configuration.AUTO,
    "implicit": configuration.JOINT_IMPLICIT,
    "explicit": configuration.JOINT_EXPLICIT,
}


@dataclass(slots=True)
class Mail:
    """A message under way, or a thread's word to its node."""

    to: int
    text: str
    message: RaftMessage | None = None
    call: Callable[[], None] | None = None
    kind: str = ""


@dataclass(slots=True)
class Append:
    """Work of the append thread."""

    text: str
    ready: Ready
    responses: list[Mail]


@dataclass(slots=True)
class Apply:
    """Work of the apply thread."""

    text: str
    entries: list[Entry]
    response: Mail


@dataclass(slots=True)
class Node:
    ident: int
    core: RaftCore
    storage: MemoryStorage
    asynchronous: bool
    hard_state: HardState
    appends: deque[Append] = field(default_factory=deque)
    applies: deque[Apply] = field(default_factory=deque)


class Group:
    """The nodes of a file, and everything under way between them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.mail: list[Mail] = []
        self.quiet = False
        self.invariants = Invariants()
        self.output: list[str] = []

    def run(self, case: Case) -> list[str]:
        """What the command prints, without log lines."""
        self.output = []
        quiet = self.quiet or case.value("log-level") == "none"
        handler = getattr(self, "_" + case.command.replace("-", "_"))
        handler(case)
        self.invariants.check(self.nodes)
        if quiet or self.quiet or not self.output:
            return ["ok"]
        return self.output

    def _print(self, text: str, indent: int = 0) -> None:
        self.output += [" " * indent + line for line in text.split("\n")]

    def _of(self, case: Case) -> list[Node]:
        """The nodes named, or all of them."""
        return [self.nodes[int(word) - 1] for word in case.words] or self.nodes

    def _one(self, case: Case) -> Node:
        return self.nodes[int(case.words[0]) - 1]

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except NotLeader:
            self._print("raft proposal dropped")

    # --- Commands ---------------------------------------------------------------------------

    def _log_level(self, case: Case) -> None:
        self.quiet = case.words == ["none"]

    def _add_nodes(self, case: Case) -> None:
        def flag(key: str) -> bool:
            return case.value(key) == "true"

        def ids(key: str) -> tuple[int, ...]:
            return tuple(map(int, case.values(key)))

        members = Membership(ids("voters"), learners=ids("learners"))
        index = int(case.value("index", "0"))
        snapshot = Snapshot(index, 1, members, case.value("content")) if index else NOTHING
        for _ in range(int(case.words[0])):
            ident = len(self.nodes) + 1
            storage = MemoryStorage(snapshot)
            options = RaftOptions(
                ident,
                election_ticks=ELECTION_TICKS,
                pre_vote=flag("prevote"),
                check_quorum=flag("checkquorum"),
                lease_reads=case.value("read-only") == "lease-based",
                asynchronous_writes=flag("async-storage-writes"),
                forward_proposals=True,
                validate_changes=not flag("disable-conf-change-validation"),
                step_down_on_removal=flag("step-down-on-removal"),
                max_message_bytes=NO_LIMIT,
                max_inflight_messages=int(case.value("inflight") or NO_LIMIT),
                max_inflight_bytes=NO_LIMIT,
                max_uncommitted_bytes=NO_LIMIT,
                max_applying_bytes=int(case.value("max-committed-size-per-ready") or NO_LIMIT),
            )
            state = HardState(0, 0, index)
            core = RaftCore(options, storage, state, members, index, lambda ticks: ticks - 1)
            node = Node(ident, core, storage, options.asynchronous_writes, state)
            self.nodes.append(node)
            self.invariants.restarted(node, index)

    def _campaign(self, case: Case) -> None:
        self._one(case).core.campaign()

    def _propose(self, case: Case) -> None:
        core = self._one(case).core
        self._try(lambda: core.propose([case.words[1].encode()]))

    def _propose_conf_change(self, case: Case) -> None:
        core = self._one(case).core
        tokens = " ".join(case.lines).split()
        changes = tuple(Change(render.LETTERS.index(each[0]), int(each[1:])) for each in tokens)
        transition = TRANSITIONS[case.value("transition")]
        context = render.V1 if case.value("v1") == "true" else b""
        change = ConfigurationChange(changes, transition, context)

        def propose() -> None:
            try:
                core.propose_configuration(change)
            except ConfigurationRefused:
                core.propose([b""])

        self._try(propose)

    def _process_ready(self, case: Case) -> None:
        nodes = self._of(case)
        for node in nodes:
            if len(nodes) > 1:
                self._print(f"> {node.ident} handling Ready")
            self._ready(node, 2 if len(nodes) > 1 else 0)

    def _deliver_msgs(self, case: Case) -> None:
        kind = case.value("type")
        for name, values in case.arguments:
            if name == "drop":
                for ident in values:
                    self._deliver(int(ident), kind, 0, drop=True)
            elif name != "type":
                self._deliver(int(name), kind, 0)

    def _process_append_thread(self, case: Case) -> None:
        self._threads(case, self._append_once, "append")

    def _process_apply_thread(self, case: Case) -> None:
        self._threads(case, self._apply_once, "apply")

    def _threads(self, case: Case, once: Callable[[Node, int], None], name: str) -> None:
        nodes = self._of(case)
        for node in nodes:
            if len(nodes) > 1:
                self._print(f"> {node.ident} processing {name} thread")
            once(node, 2 if len(nodes) > 1 else 0)

    def _tick_election(self, case: Case) -> None:
        for _ in range(ELECTION_TICKS):
            self._one(case).core.tick()

    def _tick_heartbeat(self, case: Case) -> None:
        self._one(case).core.tick()

    def _set_randomized_election_timeout(self, case: Case) -> None:
        self._one(case).core.election_timeout = int(case.value("timeout"))

    def _transfer_leadership(self, case: Case) -> None:
        self.nodes[int(case.value("from")) - 1].core.transfer(int(case.value("to")))

    def _forget_leader(self, case: Case) -> None:
        self._one(case).core.forget_leader()

    def _report_unreachable(self, case: Case) -> None:
        self._one(case).core.report_unreachable(int(case.words[1]))

    def _send_snapshot(self, case: Case) -> None:
        node, to = self._one(case), int(case.words[1])
        snapshot = node.storage.snapshot()
        message = RaftMessage(messages.SNAPSHOT, node.ident, to, node.core.term, snapshot=snapshot)
        self._post(message)
        self._print(render.message_text(message))

    def _compact(self, case: Case) -> None:
        self._one(case).storage.compact(int(case.words[1]))
        self._raft_log(case)

    def _raft_log(self, case: Case) -> None:
        storage = self._one(case).storage
        if not storage.log:
            first, last = storage.first_index(), storage.last_index()
            self._print(f"log is empty: first index={first}, last index={last}")
        for entry in storage.log:
            self._print(render.entry_text(entry))

    def _raft_state(self, case: Case) -> None:
        for node in self.nodes:
            core = node.core
            voter = "Voter" if core.tracker.is_voter(node.ident) else "Non-Voter"
            state = f"{render.ROLES[core.role]} ({voter}) Term:{core.term} Lead:{core.leader}"
            self._print(f"{node.ident}: {state}")

    def _status(self, case: Case) -> None:
        for ident, progress in self._one(case).core.tracker.progress.items():
            self._print(f"{ident}: {render.progress_text(progress)}")

    def _stabilize(self, case: Case) -> None:
        nodes = self._of(case)
        busy = True
        while busy:
            busy = False
            for node in nodes:
                if node.core.has_ready():
                    self._print(f"> {node.ident} handling Ready")
                    self._ready(node, 2)
                    busy = True
            for node in nodes:
                if any(mail.to == node.ident for mail in self.mail):
                    self._print(f"> {node.ident} receiving messages")
                    self._deliver(node.ident, "", 2)
                    busy = True
            for node in nodes:
                if node.appends:
                    self._print(f"> {node.ident} processing append thread")
                    while node.appends:
                        self._append_once(node, 2)
                    busy = True
            for node in nodes:
                if node.applies:
                    self._print(f"> {node.ident} processing apply thread")
                    while node.applies:
                        self._apply_once(node, 2)
                    busy = True
            self.invariants.check(self.nodes)

    # --- One node ---------------------------------------------------------------------------

    def _post(self, message: RaftMessage) -> None:
        kind = render.KINDS[message.kind]
        self.mail.append(Mail(message.to, render.message_text(message), message, kind=kind))

    def _deliver(self, to: int, kind: str, indent: int, *, drop: bool = False) -> None:
        mine = [mail for mail in self.mail if mail.to == to and kind in ("", mail.kind)]
        if drop:
            mine = [mail for mail in mine if mail.message is not None]
        chosen = set(map(id, mine))
        self.mail = [mail for mail in self.mail if id(mail) not in chosen]
        core = self.nodes[to - 1].core if to <= len(self.nodes) else None
        for mail in mine:
            self._print(("dropped: " if drop else "") + mail.text, indent)
            if drop or core is None:
                continue
            if mail.call is not None:
                mail.call()
            if mail.message is not None:
                try:
                    core.step(mail.message)
                except UnknownSender:
                    self._print("raft: cannot step as peer not found", indent)
                except RaftError:
                    continue

    def _ready(self, node: Node, indent: int) -> None:
        core = node.core
        if not core.has_ready():
            self._print("<empty Ready>", indent)
            return
        own_vote, leads = core.own_vote, core.role == messages.LEADER
        ready = core.ready()
        mails = [
            Mail(each.to, render.message_text(each), each, kind=render.KINDS[each.kind])
            for each in ready.messages_now
        ]
        answers = [
            Mail(each.to, render.message_text(each), each, kind=render.KINDS[each.kind])
            for each in ready.messages_after_sync
        ]
        texts = [mail.text for mail in mails]
        if node.asynchronous:
            texts += self._hand_to_threads(node, ready, answers, own_vote, leads)
        else:
            mails += answers
            texts += [mail.text for mail in answers]
        self._print_ready(ready, texts, indent)
        if not node.asynchronous:
            self._write(node, ready)
            self._apply_entries(node, ready.committed)
        self.mail += mails
        if not node.asynchronous:
            if ready.number:
                core.stable(ready.number)
            if ready.committed:
                core.applied(ready.committed[-1].index)

    def _print_ready(self, ready: Ready, texts: list[str], indent: int) -> None:
        self._print(f"Ready MustSync={str(ready.must_sync).lower()}:", indent)
        if ready.soft_state is not None:
            role = render.ROLES[ready.soft_state.role]
            self._print(f"Lead:{ready.soft_state.leader} State:{role}", indent)
        if ready.hard_state is not None:
            self._print("HardState " + _hard_state(ready.hard_state), indent)
        if ready.entries:
            self._print("Entries:", indent)
            for entry in ready.entries:
                self._print(render.entry_text(entry), indent)
        if ready.snapshot is not None:
            self._print(f"Snapshot {render.snapshot_text(ready.snapshot)}", indent)
        if ready.committed:
            self._print("CommittedEntries:", indent)
            for entry in ready.committed:
                self._print(render.entry_text(entry), indent)
        if texts:
            self._print("Messages:", indent)
            for text in texts:
                self._print(text, indent)

    def _hand_to_threads(
        self,
        node: Node,
        ready: Ready,
        answers: list[Mail],
        own_vote: RaftMessage | None,
        leads: bool,
    ) -> list[str]:
        """Queue what is to be written and applied; its lines in the Ready."""
        core, ident, texts = node.core, node.ident, []
        if ready.entries or ready.hard_state or ready.snapshot or answers or own_vote:
            responses = list(answers)
            own = own_vote
            if leads and ready.entries:
                own = RaftMessage(
                    messages.APPEND_ANSWER, ident, ident, core.term, 0, ready.entries[-1].index
                )
            if own is not None:
                responses.append(Mail(ident, render.message_text(own), kind="own"))
            log = core.log
            if log.stable_index < log.last_index or ready.snapshot:
                text = (
                    f"AppendThread->{ident} MsgStorageAppendResp Term:{core.term}"
                    f" Log:{log.last_term}/{log.last_index}"
                )
                responses.append(Mail(ident, text, kind="own"))
            mine = [each for each in responses if each.kind == "own"]
            if mine:
                mine[-1].call = lambda: core.stable(ready.number)
            text = f"{ident}->AppendThread MsgStorageAppend"
            if ready.hard_state is not None:
                state = ready.hard_state
                text += f" Term:{state.term} Log:0/0 Commit:{state.commit}"
                text += f" Vote:{state.vote}" if state.vote else ""
            else:
                text += " Term:0 Log:0/0"
            text += render.entries_text(ready.entries)
            node.appends.append(Append(text, ready, responses))
            if responses:
                text += " Responses:[\n" + "".join(f"  {each.text}\n" for each in responses) + "]"
            texts.append(text)
        if ready.committed:
            entries = render.entries_text(ready.committed)
            back = f"ApplyThread->{ident} MsgStorageApplyResp Term:0 Log:0/0{entries}"
            last = ready.committed[-1].index
            mail = Mail(ident, back, call=lambda: core.applied(last))
            text = f"{ident}->ApplyThread MsgStorageApply Term:0 Log:0/0{entries}"
            node.applies.append(Apply(text, list(ready.committed), mail))
            texts.append(f"{text} Responses:[\n  {back}\n]")
        return texts

    def _append_once(self, node: Node, indent: int) -> None:
        work = node.appends.popleft()
        self._print(f"Processing:\n{work.text}\nResponses:", indent)
        self._write(node, work.ready)
        for mail in work.responses:
            self._print(mail.text, indent)
        self.mail += work.responses

    def _apply_once(self, node: Node, indent: int) -> None:
        work = node.applies.popleft()
        self._print(f"Processing:\n{work.text}\nResponses:\n{work.response.text}", indent)
        self._apply_entries(node, work.entries)
        self.mail.append(work.response)

    def _write(self, node: Node, ready: Ready) -> None:
        if ready.hard_state is not None:
            node.hard_state = ready.hard_state
        if ready.snapshot is not None:
            node.storage.install(ready.snapshot)
            self.invariants.snapshot_installed(node, ready.snapshot.index)
        node.storage.append(ready.entries)

    def _apply_entries(self, node: Node, entries: Iterable[Entry]) -> None:
        members = node.storage.latest.membership
        for entry in entries:
            self.invariants.applied(node, entry)
            if entry.kind == messages.CONFIGURATION:
                members = node.core.apply_configuration(entry)
            node.storage.latest = Snapshot(entry.index, entry.term, members)


def _hard_state(state: HardState) -> str:
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"
