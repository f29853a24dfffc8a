"""Sessions as text: each file is a test, and documentation that needs no Python to read.

    # What a reader should know beforehand.
    publish work one two            a command, as its driver reads it
      stored 0 "one"                what came of it: indented by two spaces,
                                    or a line with an arrow `<-`, perhaps behind a client's name,
    a -> PINGREQ                    as it is here
    a <- PINGRESP

A file is played from its first command to its last, and must print what it says, to the letter.
With WEIR_REWRITE_TRANSCRIPTS=1 in the environment it is rewritten instead: read the difference
before it is committed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from difflib import unified_diff
from pathlib import Path

REWRITING = "WEIR_REWRITE_TRANSCRIPTS"

_OUTCOME = re.compile(r"  |(\w+ )?<- ")

Run = Callable[[str], Awaitable[Iterable[str]]]
"""Carries out one command; the lines that came of it."""


def transcripts(folder: Path) -> list[Path]:
    """The transcripts beside a test, in order."""
    return sorted((folder / "transcripts").glob("*.txt"))


async def replayed(text: str, run: Run) -> str:
    """A transcript with what its commands print now."""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _OUTCOME.match(line):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            try:
                printed = list(await run(line))
            except Exception as error:
                error.add_note(f"line {number}: {line}")
                raise
            assert all(map(_OUTCOME.match, printed)), printed
            lines += printed
    return "\n".join(lines) + "\n"


def play(path: Path, run: Run, loop: Callable[[Coroutine[object, object, str]], str]) -> None:
    """Fail unless a transcript's commands print what it says; or rewrite it, if that is asked.
    `loop` runs a coroutine to its end.
    """
    written = path.read_text(encoding="utf-8")
    played = loop(replayed(written, run))
    if os.environ.get(REWRITING) == "1":
        path.write_text(played, encoding="utf-8")
    else:
        compared = (written.splitlines(), played.splitlines())
        difference = "\n".join(unified_diff(*compared, "written", "played", lineterm=""))
        assert not difference, f"{path} ({REWRITING}=1 rewrites it)\n{difference}"


def parsed(command: str) -> tuple[list[str], dict[str, str]]:
    """The bare words of a command, and its `name=value` words; quotes hold blanks together."""
    words: list[str] = []
    named: dict[str, str] = {}
    for word in shlex.split(command):
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[\w.-]+", name):
            named[name] = value
        else:
            words.append(word)
    return words, named


def milliseconds(text: str) -> int:
    """`250ms`, `30s`, `5m`."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"ms": 1, "s": 1_000, "m": 60_000}[unit]
