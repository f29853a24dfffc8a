"""Botocore's model of the service turned back to the Query protocol.

The installed model speaks JSON only. The names below are those that the model had while it spoke
Query (botocore before 1.31.81, `locationName` and `resultWrapper`); with them botocore's own Query
serializer, parser and client serve as an oracle that shares nothing with our shape table.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
from botocore.model import ServiceModel

LIST_ELEMENTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "StringList": "StringListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageList": "Message",
    "QueueUrlList": "QueueUrl",
    "TagKeyList": "TagKey",
}
MEMBERS = {
    ("CreateQueueRequest", "Attributes"): "Attribute",
    ("CreateQueueRequest", "tags"): "Tag",
    ("TagQueueRequest", "Tags"): "Tag",
    ("SetQueueAttributesRequest", "Attributes"): "Attribute",
    ("GetQueueAttributesResult", "Attributes"): "Attribute",
    ("ListQueueTagsResult", "Tags"): "Tag",
    ("Message", "Attributes"): "Attribute",
    ("Message", "MessageAttributes"): "MessageAttribute",
    ("SendMessageRequest", "MessageAttributes"): "MessageAttribute",
    ("SendMessageRequest", "MessageSystemAttributes"): "MessageSystemAttribute",
    ("SendMessageBatchRequestEntry", "MessageAttributes"): "MessageAttribute",
    ("SendMessageBatchRequestEntry", "MessageSystemAttributes"): "MessageSystemAttribute",
    ("MessageAttributeValue", "StringListValues"): "StringListValue",
    ("MessageAttributeValue", "BinaryListValues"): "BinaryListValue",
    ("MessageSystemAttributeValue", "StringListValues"): "StringListValue",
    ("MessageSystemAttributeValue", "BinaryListValues"): "BinaryListValue",
}


def query_document() -> dict[str, Any]:
    """The service model as JSON, speaking Query."""
    loader = botocore.session.Session().get_component("data_loader")
    model = copy.deepcopy(loader.load_service_model("sqs", "service-2"))
    metadata = model["metadata"]
    metadata.pop("awsQueryCompatible")
    metadata.update(
        protocol="query",
        protocols=["query"],
        xmlNamespace="http://queue.amazonaws.com/doc/2012-11-05/",
    )
    for shape, element in LIST_ELEMENTS.items():
        model["shapes"][shape]["member"]["locationName"] = element
    for (shape, member), name in MEMBERS.items():
        model["shapes"][shape]["members"][member]["locationName"] = name
    for name, shape in model["shapes"].items():
        if shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        if name.endswith("List") and "error" not in shape:
            shape["flattened"] = True
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["name"] + "Result"
    return model


def query_service_model() -> ServiceModel:
    return ServiceModel(query_document(), "sqs")


def write_data_path(directory: Path) -> Path:
    """A data directory for a botocore session whose `sqs` speaks Query."""
    folder = directory / "sqs" / "2012-11-05"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text(json.dumps(query_document()))
    return directory
