"""Requests and results through botocore's own serializers and parsers, in both protocols."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import botocore.parsers
import botocore.serialize
import botocore.session
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.sqs.codec.json_codec import JSON
from adapters.sqs.codec.query_codec import QUERY_JSON, QUERY_XML
from adapters.sqs.codec.shapes import ACTIONS
from adapters.sqs.http.request_response import HttpRequest
from tests.adapters.sqs.query_model import query_service_model

JSON_MODEL = botocore.session.Session().get_service_model("sqs")
QUERY_MODEL = query_service_model()
JSON_SERIALIZER = botocore.serialize.create_serializer("json", include_validation=False)
QUERY_SERIALIZER = botocore.serialize.create_serializer("query", include_validation=False)
PARSERS = botocore.parsers.ResponseParserFactory()

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
XML_TEXT = st.text(
    st.characters(
        exclude_categories=["Cs"],
        exclude_characters=[chr(c) for c in range(32) if c not in (9, 10, 13)]
        + ["\ufffe", "\uffff"],
    ),
    max_size=20,
)


def values_of(shape, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of a botocore shape; containers hold at least one element (see `without_empty`)."""
    kind = shape.type_name
    if kind == "structure":
        members = {name: values_of(member, text) for name, member in shape.members.items()}
        required = {name: members.pop(name) for name in list(members) if name in
                    shape.required_members}  # fmt: skip
        return st.fixed_dictionaries(required, optional=members)
    if kind == "list":
        return st.lists(values_of(shape.member, text), min_size=1, max_size=3)
    if kind == "map":
        return st.dictionaries(text, values_of(shape.value, text), min_size=1, max_size=3)
    return {
        "string": text,
        "integer": st.integers(-(10**9), 10**9),
        "long": st.integers(-(10**17), 10**17),
        "boolean": st.booleans(),
        "blob": st.binary(max_size=20),
    }[kind]


def plain(shape: object) -> Any:
    return msgspec.to_builtins(shape, builtin_types=(bytes,))


def json_request(name: str, params: dict[str, Any]) -> HttpRequest:
    serialized = JSON_SERIALIZER.serialize_to_request(params, JSON_MODEL.operation_model(name))
    headers = [(key.lower().encode(), value.encode()) for key, value in
               serialized["headers"].items()]  # fmt: skip
    return HttpRequest("POST", b"/", b"", headers, serialized["body"])


def query_request(name: str, params: dict[str, Any], method: str) -> HttpRequest:
    operation = QUERY_MODEL.operation_model(name)
    encoded = urlencode(QUERY_SERIALIZER.serialize_to_request(params, operation)["body"]).encode()
    query, body = (encoded, b"") if method == "GET" else (b"", encoded)
    return HttpRequest(method, b"/", query, [], body)


def parsed(protocol: str, response, operation) -> dict[str, Any]:
    answer = PARSERS.create_parser(protocol).parse(
        {
            "status_code": response.status,
            "headers": {key.decode(): value.decode() for key, value in response.headers},
            "body": response.body,
        },
        operation.output_shape,
    )
    metadata = answer.pop("ResponseMetadata")
    assert metadata["RequestId"] == "r-1"
    return answer


@pytest.mark.parametrize("name", sorted(ACTIONS))
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_json_request_of_botocore_is_read_as_it_was_meant(name: str, data) -> None:
    shape = JSON_MODEL.operation_model(name).input_shape
    params = data.draw(values_of(shape, ANY_TEXT))
    call = JSON.decode(json_request(name, params))
    assert call.action.name == name
    assert plain(call.params) == params


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", sorted(ACTIONS))
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_query_request_of_botocore_is_read_as_it_was_meant(name: str, method: str, data) -> None:
    shape = QUERY_MODEL.operation_model(name).input_shape
    params = data.draw(values_of(shape, ANY_TEXT))
    call = QUERY_XML.decode(query_request(name, params, method))
    assert call.action.name == name
    assert plain(call.params) == params


WITH_RESULT = sorted(name for name, action in ACTIONS.items() if action.result)


@pytest.mark.parametrize("name", WITH_RESULT)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_botocore_reads_our_json_results(name: str, data) -> None:
    operation = JSON_MODEL.operation_model(name)
    members = data.draw(values_of(operation.output_shape, ANY_TEXT))
    result = msgspec.convert(members, ACTIONS[name].result, builtin_types=(bytes,))
    response = JSON.encode_result(ACTIONS[name], result, "r-1")
    assert parsed("json", response, operation) == members


@pytest.mark.parametrize("name", WITH_RESULT)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_botocore_reads_our_xml_results(name: str, data) -> None:
    operation = QUERY_MODEL.operation_model(name)
    members = data.draw(values_of(operation.output_shape, XML_TEXT))
    result = msgspec.convert(members, ACTIONS[name].result, builtin_types=(bytes,))
    response = QUERY_XML.encode_result(ACTIONS[name], result, "r-1")
    assert parsed("query", response, operation) == members


@pytest.mark.parametrize("name", sorted(set(ACTIONS) - set(WITH_RESULT)))
def test_an_action_without_result_answers_with_its_request_id_alone(name: str) -> None:
    action = ACTIONS[name]
    for model, protocol, codec in (
        (JSON_MODEL, "json", JSON),
        (QUERY_MODEL, "query", QUERY_XML),
    ):
        response = codec.encode_result(action, None, "r-1")
        assert parsed(protocol, response, model.operation_model(name)) == {}
    rendered = msgspec.json.decode(QUERY_JSON.encode_result(action, None, "r-1").body)
    assert rendered == {f"{name}Response": {"ResponseMetadata": {"RequestId": "r-1"}}}


@pytest.mark.parametrize("name", WITH_RESULT)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_the_json_rendering_of_query_is_valid_json(name: str, data) -> None:
    shape = JSON_MODEL.operation_model(name).output_shape
    members = data.draw(values_of(shape, ANY_TEXT))
    result = msgspec.convert(members, ACTIONS[name].result, builtin_types=(bytes,))
    response = QUERY_JSON.encode_result(ACTIONS[name], result, "r-1")
    document = msgspec.json.decode(response.body)
    assert document[f"{name}Response"][f"{name}Result"].keys() == members.keys()
