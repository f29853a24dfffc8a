"""The Query protocol, version 2012-11-05: older SDKs, curl, pre-signed URLs.

    GET  /000000000000/orders?Action=SendMessage&MessageBody=hello
    POST /   Content-Type: application/x-www-form-urlencoded
             Action=ReceiveMessage&QueueUrl=…&AttributeName.1=All

Parameters come from the query string and, with POST, from the body, which wins. Dotted names make
a tree (`shape_base` draws the forms); a number may be left out of it where there is one element
(`Attribute.Name=…`). Unknown parameters, among them a signature's, are ignored. On a queue's own
path the path stands for QueueUrl, and actions on the account are refused. Answers are XML, or JSON
for `Accept: application/json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from .. import error_codes as errors
from .. import names
from ..error_codes import SqsError
from ..http import request_response as http
from . import xml
from .shape_base import Field, Shape, ShapeKind, fields_of
from .shapes import ACTIONS, Action, Call

if TYPE_CHECKING:
    from ..http.request_response import HttpRequest, HttpResponse

PARAMETERS_MAX = 4000
"""A batch of 10 messages with 10 attributes each takes 650; list values and a signature, few."""
DEPTH_MAX = 8
"""Levels of a dotted name; a list value of an attribute of a batch entry takes 7."""
INDEX_DIGITS_MAX = 6

FORM_CONTENT_TYPE = b"application/x-www-form-urlencoded"
XML_CONTENT_TYPE = b"text/xml"
JSON_CONTENT_TYPE = b"application/json"
_JSON_ENCODER = msgspec.json.Encoder()
_CONTAINERS = frozenset({ShapeKind.LIST, ShapeKind.MAP})


class _Node:
    """Part of a dotted name: its own value, and what stands below it."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.value: str | None = None
        self.children: dict[str, _Node] = {}


class QueryProtocol:
    """See `wire.WireProtocol`. One instance answers in XML, the other in JSON."""

    def __init__(self, *, answers_json: bool) -> None:
        self.name = "query"
        self._answers_json = answers_json

    def decode(self, request: HttpRequest) -> Call:
        """The call in a request. Raises SqsError for whatever is wrong with its form."""
        tree = _read_parameters(request)
        queue_path = names.queue_path(request.raw_path)
        action = _action(tree, on_queue_path=queue_path is not None)
        if queue_path and action.on_queue and "QueueUrl" not in tree.children:
            tree.children["QueueUrl"] = _leaf(queue_path)
        members = _shape(action.request, tree)
        try:
            # Query has no types: every value is text until the shape says otherwise.
            return Call(action, msgspec.convert(members, action.request, strict=False))
        except msgspec.ValidationError as error:
            raise SqsError(errors.INVALID_PARAMETER_VALUE, str(error)) from None

    def encode_result(self, action: Action, result: Shape | None, request_id: str) -> HttpResponse:
        """The answer to a call that succeeded."""
        if self._answers_json:
            return _json_result(action, result, request_id)
        body = xml.encode_result(action, result, request_id)
        return http.response(200, XML_CONTENT_TYPE, request_id, body)

    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """The answer to a call that failed."""
        kind = error.kind
        if kind is errors.UNKNOWN_OPERATION:
            return http.response(kind.status, XML_CONTENT_TYPE, request_id, xml.UNKNOWN_OPERATION)
        if self._answers_json:
            return _json_error(error, request_id)
        body = xml.encode_error(error, request_id)
        return http.response(kind.status, XML_CONTENT_TYPE, request_id, body)


QUERY_XML = QueryProtocol(answers_json=False)
QUERY_JSON = QueryProtocol(answers_json=True)


# --- parameters --------------------------------------------------------------------------------


def _read_parameters(request: HttpRequest) -> _Node:
    if len(request.body) > http.REQUEST_BYTES_MAX or len(request.query) > http.REQUEST_BYTES_MAX:
        raise SqsError(errors.REQUEST_TOO_LARGE)
    pairs = request.query.split(b"&", PARAMETERS_MAX)
    if request.method == "POST":
        pairs += request.body.split(b"&", PARAMETERS_MAX)
    if len(pairs) > PARAMETERS_MAX:
        raise SqsError(errors.MALFORMED_QUERY_STRING, "The request has too many parameters.")
    tree = _Node()
    for pair in pairs:
        name, _, value = pair.partition(b"=")
        if name:
            _insert(tree, _unquote(name), _unquote(value))
    return tree


def _unquote(text: bytes) -> str:
    if b"%" in text or b"+" in text:
        text = unquote_to_bytes(text.replace(b"+", b" "))
    try:
        return text.decode()
    except UnicodeDecodeError:
        message = "A parameter is not UTF-8 in percent-encoding."
        raise SqsError(errors.MALFORMED_QUERY_STRING, message) from None


def _insert(tree: _Node, name: str, value: str) -> None:
    parts = name.split(".", DEPTH_MAX)
    if len(parts) > DEPTH_MAX:
        return  # Deeper than any parameter we know, so unknown, so ignored.
    node = tree
    for part in parts:
        node = node.children.setdefault(part, _Node())
    node.value = value


def _leaf(value: str) -> _Node:
    node = _Node()
    node.value = value
    return node


def _action(tree: _Node, *, on_queue_path: bool) -> Action:
    node = tree.children.get("Action")
    name = node.value if node else None
    if not name:
        if on_queue_path or not tree.children:
            raise SqsError(errors.UNKNOWN_OPERATION)
        raise SqsError(errors.MISSING_ACTION)
    action = ACTIONS.get(name)
    if action is None or (on_queue_path and not action.on_queue_path):
        raise SqsError(errors.INVALID_ACTION, f"The action {name} is not valid for this endpoint.")
    return action


# --- from the tree to the members of a shape ---------------------------------------------------


def _shape(shape: type[Shape], node: _Node) -> dict[str, object]:
    members: dict[str, object] = {}
    for field in fields_of(shape):
        child = node.children.get(field.query_name)
        if child is None and field.kind in _CONTAINERS:
            # Some clients use the member's own name: Tags.1.Key beside Tag.1.Key.
            child = node.children.get(field.json_name)
        value = None if child is None else _member(field, child)
        if value is not None:
            members[field.json_name] = value
        elif field.kind is ShapeKind.LIST and field.required:
            # An empty list cannot be told from none; the check of the list says which error.
            members[field.json_name] = []
    return members


def _member(field: Field, node: _Node) -> object:
    if field.kind is ShapeKind.LIST:
        return [_item(field, item) for item in _elements(node)]
    if field.kind is ShapeKind.MAP:
        return dict(_entry(field, item) for item in _elements(node))
    return _scalar(field.kind, field.query_name, node)


def _item(field: Field, node: _Node) -> object:
    if field.item_shape is not None:
        return _shape(field.item_shape, node)
    assert field.item is not None
    return _scalar(field.item, field.query_name, node) or ""


def _entry(field: Field, node: _Node) -> tuple[str, object]:
    key = node.children.get(field.key_name)
    if key is None or key.value is None:
        raise errors.missing_parameter(f"{field.query_name}.{field.key_name}")
    return key.value, _item(field, node.children.get("Value") or _Node())


def _elements(node: _Node) -> list[_Node]:
    """Elements of a list or map in the order of their numbers; gaps are allowed."""
    numbered = [
        (int(index), child)
        for index, child in node.children.items()
        if index.isascii() and index.isdigit() and len(index) <= INDEX_DIGITS_MAX
    ]
    if not numbered:
        return [node] if node.value or node.children else []
    numbered.sort(key=lambda pair: pair[0])
    return [child for _, child in numbered]


def _scalar(kind: ShapeKind, name: str, node: _Node) -> str | None:
    text = node.value
    if kind is ShapeKind.INTEGER and text is not None:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise errors.invalid_parameter(text, name, "Must be an integer.")
    return text


# --- the JSON rendering ------------------------------------------------------------------------


def _json_result(action: Action, result: Shape | None, request_id: str) -> HttpResponse:
    answer: dict[str, object] = {"ResponseMetadata": {"RequestId": request_id}}
    if action.result is not None:
        answer[f"{action.name}Result"] = None if result is None else _render(result)
    body = _JSON_ENCODER.encode({f"{action.name}Response": answer})
    return http.response(200, JSON_CONTENT_TYPE, request_id, body)


def _render(shape: Shape) -> dict[str, object]:
    """Like the JSON protocol's, but maps are lists of names and values, as in XML."""
    members: dict[str, object] = {}
    for field in fields_of(type(shape)):
        value = getattr(shape, field.attribute)
        if value is None or (not value and field.kind in _CONTAINERS and not field.required):
            continue
        if field.kind is ShapeKind.LIST:
            value = [_render(item) if isinstance(item, Shape) else item for item in value]
        elif field.kind is ShapeKind.MAP:
            value = [
                {field.key_name: key, "Value": _render(item) if isinstance(item, Shape) else item}
                for key, item in value.items()
            ]
        members[field.json_name] = value
    return members


def _json_error(error: SqsError, request_id: str) -> HttpResponse:
    kind = error.kind
    body = _JSON_ENCODER.encode(
        {
            "Error": {
                "Code": kind.code,
                "Message": error.query_message,
                "Type": "Sender" if kind.sender else "Receiver",
            },
            "RequestId": request_id,
        }
    )
    return http.response(kind.status, JSON_CONTENT_TYPE, request_id, body)
