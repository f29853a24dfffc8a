"""The kernel knows no protocol: none of their nouns stands in it, in code, comment or name.

What two protocols need is a kernel feature with a word of its own; what one needs is its adapter's.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source_tree import project_files, text_of

PROTOCOL_NOUN = re.compile(r"mqtt|amqp|rabbitmq|sqs|amazon|rocketmq|kafka", re.IGNORECASE)


def lines_with_nouns(file: Path, text: str) -> list[tuple[str, str]]:
    """(file, line) of what names a protocol, the file's own name included."""
    named = [line.strip() for line in text.splitlines() if PROTOCOL_NOUN.search(line)]
    if PROTOCOL_NOUN.search(file.name):
        named.append("its name")
    return [(str(file), line) for line in named]


def test_no_protocol_is_named_in_the_kernel() -> None:
    found = [
        each
        for file in project_files()
        if file.parts[0] == "kernel"
        for each in lines_with_nouns(file, text_of(file) or "")
    ]
    assert found == []


def test_a_noun_is_found_in_any_case_and_in_a_files_name() -> None:
    text = "queue = 1\n    # as MQTT has it\nclass SqsThing:\n"
    assert lines_with_nouns(Path("kernel/a.py"), text) == [
        ("kernel/a.py", "# as MQTT has it"),
        ("kernel/a.py", "class SqsThing:"),
    ]
    assert lines_with_nouns(Path("kernel/amqp_queue.py"), "") == [
        ("kernel/amqp_queue.py", "its name")
    ]
