"""Rules for message attributes and message system attributes (SQS Developer Guide).

At most 10; a name of at most 256 of `[A-Za-z0-9_.-]`, not starting with `AWS.` or `Amazon.`, with
single periods inside only; type String, Number or Binary, with an optional `.label`; never an empty
value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .. import error_codes as errors
from ..error_codes import SqsError
from . import body_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..codec.shapes import MessageAttributeValue

ATTRIBUTES_MAX = 10
NAME_CHARS_MAX = 256
TYPE_CHARS_MAX = 256
TRACE_HEADER = "AWSTraceHeader"

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_RESERVED = ("aws.", "amazon.")


def size_of_attributes(attributes: Mapping[str, MessageAttributeValue] | None) -> int:
    """Bytes that count towards the size of a message: names, types and values."""
    if not attributes:
        return 0
    return sum(
        _utf8_size(name)
        + _utf8_size(value.data_type)
        + _utf8_size(value.string_value)
        + len(value.binary_value or b"")
        for name, value in attributes.items()
    )


def is_attribute_name(name: str) -> bool:
    """True if a message attribute may have this name."""
    return _name_fault(name) is None


def check_attributes(attributes: Mapping[str, MessageAttributeValue]) -> None:
    """Check message attributes. Raises InvalidParameterValue."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise _invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}]."
        )
    for name, value in attributes.items():
        fault = _name_fault(name) or _value_fault("(user)", name, value)
        if fault is not None:
            raise _invalid(fault)


def check_system_attributes(attributes: Mapping[str, MessageAttributeValue]) -> None:
    """Check message system attributes: only AWSTraceHeader, a String, may be sent.

    Raises InvalidParameterValue.
    """
    for name, value in attributes.items():
        if name != TRACE_HEADER:
            raise _invalid(f"Message system attribute name '{name}' is invalid.")
        fault = _value_fault("system", name, value)
        if fault is None and value.data_type != "String":
            fault = f"The message system attribute '{name}' must be of type String."
        if fault is not None:
            raise _invalid(fault)


def is_number(text: str) -> bool:
    """True if the text is a value of type Number."""
    return _NUMBER.fullmatch(text) is not None


def _name_fault(name: str) -> str | None:
    lower = name.lower()
    if not name:
        return "The request must contain non-empty message (user) attribute names."
    if len(name) > NAME_CHARS_MAX:
        return f"Message (user) attribute name must be shorter than {NAME_CHARS_MAX} bytes."
    if lower.startswith(_RESERVED):
        return (
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
            "strings are reserved for internal use."
        )
    if name.startswith("."):
        return "Message (user) attribute name must not begin with character '.'."
    if name.endswith("."):
        return "Message (user) attribute name must not end with character '.'."
    if ".." in name:
        return "Message (user) attribute name must not have successive '.' characters."
    if not _NAME.fullmatch(name):
        return (
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, "
            "0-9, underscore (_), hyphen (-), and period (.) characters."
        )
    return None


def _value_fault(scope: str, name: str, value: MessageAttributeValue) -> str | None:
    if value.string_list_values or value.binary_list_values:
        return "Message attribute list values in SendMessage operation are not supported."
    data_type = value.data_type
    subject = f"{scope} attribute '{name}'"
    if not data_type:
        what = "value" if value.string_value is None and value.binary_value is None else "type"
        return f"The message {subject} must contain a non-empty message attribute {what}."
    if len(data_type) >= TYPE_CHARS_MAX:
        return f"Message {scope} attribute type must be shorter than {TYPE_CHARS_MAX} bytes."
    kind = data_type.partition(".")[0]
    if kind not in {"String", "Number", "Binary"} or not body_text.is_legal(data_type.encode()):
        return (
            f"The type of message {subject} is invalid. You must use only the "
            "following supported type prefixes: Binary, Number, String."
        )
    if value.string_value is not None and value.binary_value is not None:
        return f"Message {subject} must have a single value."
    field = "Binary" if kind == "Binary" else "String"
    misplaced = value.string_value if kind == "Binary" else value.binary_value
    if misplaced:
        return f"Message {subject} with type '{data_type}' must use field '{field}'."
    if not (value.string_value or value.binary_value):
        return f"Message {subject} must contain a non-empty value of type '{kind}'."
    return _text_fault(subject, kind, value.string_value)


def _text_fault(subject: str, kind: str, text: str | None) -> str | None:
    if text is None:
        return None
    if not body_text.is_legal(text.encode()):
        return errors.INVALID_MESSAGE_CONTENTS.message
    if kind == "Number" and not is_number(text):
        return f"Can't cast the value of message {subject} to a number."
    return None


def _utf8_size(text: str | None) -> int:
    return len(text.encode()) if text else 0


def _invalid(message: str) -> SqsError:
    return SqsError(errors.INVALID_PARAMETER_VALUE, message)
