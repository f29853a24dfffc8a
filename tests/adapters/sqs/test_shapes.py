"""The shape table beside botocore's model of the service, member by member."""

from __future__ import annotations

import botocore.session
import pytest

from adapters.sqs.codec.shape_base import Shape, ShapeKind, fields_of, wire_name
from adapters.sqs.codec.shapes import ACTIONS

MODEL = botocore.session.Session().get_service_model("sqs")

SCALARS = {
    "string": ShapeKind.STRING,
    "integer": ShapeKind.INTEGER,
    "long": ShapeKind.INTEGER,
    "boolean": ShapeKind.BOOLEAN,
    "blob": ShapeKind.BLOB,
}


def test_every_action_of_the_model_is_in_the_table_and_no_other() -> None:
    assert set(ACTIONS) == set(MODEL.operation_names)
    assert len(ACTIONS) == 23


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_input_and_output_agree_with_the_model(name: str) -> None:
    action, operation = ACTIONS[name], MODEL.operation_model(name)
    assert_same(action.request, operation.input_shape)
    if operation.output_shape is None:
        assert action.result is None
    else:
        assert action.result is not None
        assert_same(action.result, operation.output_shape)


def assert_same(shape: type[Shape], model) -> None:
    fields = {field.json_name: field for field in fields_of(shape)}
    assert set(fields) == set(model.members), shape
    for name, field in fields.items():
        member = model.members[name]
        assert field.required == (name in model.required_members), (shape, name)
        if member.type_name == "list":
            assert field.kind is ShapeKind.LIST
            assert_same_item(field, member.member)
        elif member.type_name == "map":
            assert field.kind is ShapeKind.MAP
            assert_same_item(field, member.value)
        else:
            assert field.kind is SCALARS[member.type_name], (shape, name)


def assert_same_item(field, model) -> None:
    if model.type_name == "structure":
        assert field.item is ShapeKind.SHAPE
        assert_same(field.item_shape, model)
    else:
        assert field.item is SCALARS[model.type_name]


def test_wire_names_keep_the_capitals_of_abbreviations() -> None:
    assert wire_name("md5_of_message_body") == "MD5OfMessageBody"
    assert wire_name("queue_owner_aws_account_id") == "QueueOwnerAWSAccountId"
    assert wire_name("id") == "Id"


def test_actions_on_the_account_are_told_from_those_on_a_queue() -> None:
    on_account = {name for name, action in ACTIONS.items() if not action.on_queue}
    assert on_account == {
        "CreateQueue",
        "GetQueueUrl",
        "ListQueues",
        "StartMessageMoveTask",
        "ListMessageMoveTasks",
        "CancelMessageMoveTask",
    }
    assert ACTIONS["GetQueueUrl"].on_queue_path
    assert not ACTIONS["CreateQueue"].on_queue_path
