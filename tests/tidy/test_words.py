"""The code has the field's words: no name has one of our own that the glossary has replaced.

Read by words: `resting_groups` has `resting`, `interest` has not `rest`. What a word means here is
in docs/glossary.md.
"""

from __future__ import annotations

import io
import re
import tokenize

from tests.tidy.source_tree import PACKAGES, project_files, python_files, text_of

FIELD_WORD = {
    "abroad": "remote",
    "attend": "report",
    "attendance": "heartbeat report",
    "borrow": "remote consumer",
    "borrowed": "remote",
    "borrower": "remote consumer",
    "borrowing": "remote consumers",
    "courier": "request pipeline",
    "desk": "registry, service",
    "duties": "leader tasks",
    "duty": "leader task",
    "fellow": "peer store",
    "fellows": "peer stores",
    "guest": "remote process",
    "lend": "serve a remote consumer",
    "lending": "served consumers",
    "lent": "handed over",
    "letter": "dead letter",
    "letters": "dead letters",
    "loan": "served consumer",
    "lone": "sole consumer",
    "late": "origin index",
    "office": "administration",
    "owe": "pending",
    "owed": "pending",
    "rest": "idle (a queue), quiescent (a Raft group)",
    "resting": "idle (a queue), quiescent (a Raft group)",
    "rests": "is idle (a queue), is quiescent (a Raft group)",
    "stepwise": "cross-group",
    "taker": "consumer",
    "takers": "consumers",
    "turns": "keyed lock, dispatch rounds, stream batches",
    "volatile": "transient",
}
"""A word that is not used, and what it is called instead."""

PLAIN = {
    **dict.fromkeys(
        ("rest", "_rest", "_is_rest", "rest_ms"), "what is left of something, as in any language"
    ),
    **dict.fromkeys(
        ("late", "late_s", "late_error", "is_late", "_is_late", "_late", "LATE", "TOO_LATE"),
        "after its time",
    ),
    "ACKED_LATE": "after its time; a reason that the log has",
    "owed": "credit of deliveries that were settled, to be counted for the bill",
    **dict.fromkeys(("LONE", "lone", "lone_producer"), "the load `lone` of `weir bench amqp`"),
    **dict.fromkeys(("turns", "SUSPECT_TURNS"), "in turns: one after the other"),
    "turns_away": "refuses",
    "taker": "a local variable of a benchmark",
}
"""A name that has such a word in its plain sense, and which."""

ONLY_OURS = re.compile(
    r"\b(?:abroad|attend(?:s|ance)?|borrow\w*|couriers?|desks?|fellows?|lending|lent|stepwise|takers?"
    r"|volatile)\b",
    re.IGNORECASE,
)
"""Those that mean nothing else, so that no comment and no page needs them."""

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def private_words(name: str) -> list[str]:
    """The words of a name that the field has others for; a dead letter is the field's own."""
    parts = [part.lower() for part in PART.findall(name)]
    return [
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if part in FIELD_WORD and not (part in {"letter", "letters"} and before == "dead")
    ]


def names_in(text: str) -> set[str]:
    """Every name that stands in the code of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {each.string for each in tokens if each.type == tokenize.NAME}


def test_no_name_has_a_word_of_our_own() -> None:
    found: dict[str, str] = {}
    for file in python_files():
        if file.parts[0] in PACKAGES:
            of_file = {file.stem, *file.parts[:-1]}
            for name in names_in(text_of(file) or "") | of_file:
                if private_words(name):
                    found[name] = str(file)
    assert {name: file for name, file in found.items() if name not in PLAIN} == {}
    assert PLAIN.keys() - found.keys() == set(), "not needed"


def test_no_comment_and_no_page_has_a_word_of_our_own() -> None:
    found = {
        str(file): words
        for file in project_files()
        if file.parts[0] in {"kernel", "adapters", "gateway", "auth", "metering", "docs"}
        if file.name != "glossary.md" and file.suffix in {".py", ".md"}
        if (words := ONLY_OURS.findall(text_of(file) or ""))
    }
    assert found == {}


def test_a_word_is_found_in_any_spelling_and_by_itself() -> None:
    assert private_words("FellowStores") == ["fellow"]
    assert private_words("VOLATILE_GROUP") == ["volatile"]
    assert private_words("_half_desk") == ["desk"]
    assert private_words("interest") == private_words("dead_letters") == []
    assert private_words("DeadLetter") == private_words("translate") == []
