"""Bytes that do not decode are caught as `UNDECODABLE`: msgspec has three kinds of errors for them.

Text that is no UTF-8 is a UnicodeDecodeError, and what is too deep a RecursionError; who catches
msgspec's own alone ends a connection, or a start, with a traceback.
"""

from __future__ import annotations

import ast

from tests.tidy.source_tree import PACKAGES, python_files, text_of

ALONE = {"DecodeError", "MsgspecError"}
DEFINED_IN = "kernel/common/errors.py"


def caught_alone(source: str) -> list[int]:
    """The lines where one of msgspec's own errors for bytes is caught by its name."""
    tree = ast.parse(source)
    own = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "msgspec"
        for each in node.names
        if each.name in ALONE
    }
    return [
        handler.lineno
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
        for part in ast.walk(handler.type)
        if (isinstance(part, ast.Name) and part.id in own)
        or (
            isinstance(part, ast.Attribute)
            and part.attr in ALONE
            and isinstance(part.value, ast.Name)
            and part.value.id == "msgspec"
        )
    ]


def test_what_does_not_decode_is_caught_whatever_is_wrong_with_it() -> None:
    found = {
        str(file): lines
        for file in python_files()
        if file.parts[0] in PACKAGES
        and str(file) != DEFINED_IN
        and any(name in (text := text_of(file) or "") for name in ALONE)
        and (lines := caught_alone(text))
    }
    assert found == {}


def test_errors_caught_alone_are_found_and_nothing_else() -> None:
    source = """
from msgspec import DecodeError
from google.protobuf.message import DecodeError as Other
try: f()
except msgspec.MsgspecError: pass
except (OSError, DecodeError): pass
except (*UNDECODABLE, OSError): pass
except Other: pass
except msgspec.ValidationError: pass
"""
    assert caught_alone(source) == [5, 6]
