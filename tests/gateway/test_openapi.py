"""The OpenAPI document of the admin API: it says what the handlers read and what they answer."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from schemathesis import checks
from schemathesis.core.failures import FailureGroup

from adapters.definitions import Definitions
from gateway.admin.http.operations import Operation
from gateway.admin.openapi import document
from gateway.admin.operations import API
from gateway.admin.resources import connections
from gateway.admin.resources.limits import LimitChanges
from gateway.admin.resources.topic_shapes import OptionsShown
from kernel.api.model import TopicOptions
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXAMPLES = 3
"""Of each operation: some hundred requests in all."""

WAITS = {"GET /limits", "GET /events", "POST /topics/{topic}/groups/{group}/receive"}
"""Operations that take a second each."""

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def read_by(operation: Operation) -> tuple[str | None, set[str]]:
    """(the type of the body, the parameters of the query) that a handler reads, by its source."""
    source = inspect.getsource(operation.handler)
    body = re.search(r"read_body\(\s*request,\s*([\w.]+)", source)
    names = set(re.findall(r"\b(?:number|flag)\(\s*request,\s*\"(\w+)\"", source))
    names |= set(re.findall(r"query_params\.get\(\"(\w+)\"", source))
    if "page_of(" in source:
        names |= {"after", "limit"} | ({"prefix"} if "prefix, after" in source else set())
    if "_entity(" in source:
        names.add("tenant")
    if "_reason(" in source:
        names.add("reason")
    if "in FILTERS" in source:
        names |= set(connections.FILTERS)
    if "self._read(" in source:  # or another broker's document
        return "Definitions", names
    return body and body[1].rpartition(".")[2], names


@pytest.mark.parametrize("operation", API, ids=lambda each: each.name)
def test_what_is_told_is_what_the_handler_reads(operation: Operation) -> None:
    body, query = read_by(operation)
    told = operation.takes
    spelled = "LimitChanges" if told is LimitChanges else getattr(told, "__name__", None)
    assert body == spelled
    queue = {"from_queue", "queue"} & {each.name for each in operation.query}
    assert {each.name for each in operation.query} == query | queue
    assert operation.says, "a handler says what it does"


def test_every_setting_of_a_topic_is_shown_or_left_out_on_purpose() -> None:
    left_out = {"queues", "owner", "hidden", "declarations"}
    assert {*OptionsShown.__struct_fields__} == {*TopicOptions.__struct_fields__} - left_out


def test_a_misspelled_setting_is_refused_wherever_it_stands() -> None:
    """Whatever a request has within, and a document of definitions, as far down as it goes."""
    takes = {each.takes for each in API if inspect.isclass(each.takes)} | {Definitions}
    _, shapes = msgspec.json.schema_components(takes)
    lax = [
        name
        for name, shape in shapes.items()
        if "properties" in shape and shape.get("additionalProperties") is not False
    ]
    assert "GroupNew" in shapes
    assert lax == []


def test_operations_have_names_of_their_own() -> None:
    paths = document(API).paths.values()
    names = [each["operationId"] for methods in paths for each in methods.values()]
    assert len(set(names)) == len(names) == len(API)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A node of its own, which keeps whatever it is sent."""
    with serving(tmp_path_factory.mktemp("openapi")) as process:
        yield process


def test_it_is_served_to_whoever_signs_in_and_tells_of_this_process(node: Process) -> None:
    assert node.http("GET", "/api/v1/openapi.json", token=None).status == 401
    found = node.api("GET", "/openapi.json").json
    assert found["openapi"] == "3.1.0"
    ours = {each.path for each in API if not each.path.startswith("/cluster")}
    assert {*found["paths"]} == {*ours, "/cluster/features"}


def make_things(node: Process) -> dict[str, str]:
    """One of each thing that paths name: what is there, by the name of the parameter."""
    assert node.api("POST", "/topics", {"name": "orders"}).status == 201
    assert node.api("POST", "/topics/orders/groups", {"name": "billing"}).status == 201
    assert node.api("POST", "/routers", {"name": "door"}).status == 201
    route = node.api("POST", "/routers/door/routes", {"topic": "orders", "key": "k"})
    assert node.api("PUT", "/policies/readers", {"rules": ["allow * *"]}).status == 201
    assert node.api("POST", "/users", {"name": "ann", "password": "a good one"}).status == 201
    key = node.api("POST", "/keys", {"user": "ann"})
    assert node.api("POST", "/tenants", {"name": "initech"}).status == 201
    node.api("POST", "/topics/orders/messages", {"body": "one", "attributes": {"n": 1}})
    return {
        "topic": "orders",
        "group": "billing",
        "router": "door",
        "route": route.json["id"],
        "policy": "readers",
        "user": "ann",
        "key": key.json["key_id"],
        "tenant": "initech",
        "scope": "tenant",
        "name": "default",
    }


def ask(node: Process, operation: Any, there: Mapping[str, str], examples: int) -> set[int]:
    """Requests of an operation, made of what the document says of it, about what is `there`; the
    statuses that came.
    """
    found = set()

    @seeded(1)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        case.path_parameters.update({k: v for k, v in there.items() if k in case.path_parameters})
        case.query.pop("tenant", None)
        response = case.call(
            base_url=f"{node.admin_url}/api/v1",
            headers={"Authorization": f"Bearer {node.token}"},
        )
        found.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    send()
    return found


def operations_of(told: dict[str, Any]) -> list[Any]:
    """What removes comes last, and what lies within goes first: the others need what is there."""
    found = [each.ok() for each in schemathesis.openapi.from_dict(told).get_all_operations()]
    return sorted(
        found,
        key=lambda each: (
            each.method.upper() == "DELETE",
            "user" in each.path,
            -each.path.count("/"),
        ),
    )


REFUSED = {
    "GET /access",
    "DELETE /console/session",
    "GET /sessions/{client}",
    "DELETE /sessions/{client}",
    "DELETE /connections",
    "GET /connections/{connection}",
    "DELETE /connections/{connection}",
    "DELETE /topics/{topic}/moves/{task}",
    "DELETE /topics/{topic}/size",
    "GET /backups/{number}",
    "GET /topics/{topic}/history/{message}",
}
"""There is no session (of MQTT, of a browser), no connection, no task and no pin of a name that was
made up, the topic has no automatic size, and what was made up is no uid. Bodies are refused as well
where they name what is not there."""


def test_every_answer_is_as_the_document_says(node: Process) -> None:
    told = node.api("GET", "/openapi.json").json
    there = make_things(node)
    statuses = {}
    for operation in operations_of(told):
        name = f"{operation.method.upper()} {operation.path}"
        statuses[name] = ask(node, operation, there, 1 if name in WAITS else EXAMPLES)
    assert len(statuses) == sum(len(methods) for methods in told["paths"].values())
    refused = {name for name, found in statuses.items() if min(found) >= 300}
    assert {name for name in refused if name.startswith(("GET", "DELETE"))} <= REFUSED


def test_an_answer_of_another_form_is_found(node: Process) -> None:
    told = node.api("GET", "/openapi.json").json
    told["components"]["schemas"]["PolicyList"]["required"].append("owner")
    (operation,) = (
        each
        for each in operations_of(told)
        if each.path == "/policies" and each.method.upper() == "GET"
    )
    with pytest.raises(FailureGroup, match="owner"):
        ask(node, operation, {}, 1)
