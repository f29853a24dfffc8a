"""Actions on queues, through boto3, against a whole service."""

from __future__ import annotations

import json
import threading
import time

import pytest
from botocore.exceptions import ClientError

from adapters.sqs.queues.declaration import ADAPTER
from kernel.api.client import PutTopic
from kernel.api.model import DeadLetter, GroupOptions, TopicKind, TopicOptions
from tests.adapters.sqs.service import Service

ACCOUNT = "000000000000"


def code_of(caught) -> str:
    return caught.value.response["Error"]["Code"]


def message_of(caught) -> str:
    return caught.value.response["Error"]["Message"]


def attributes_of(sqs, url: str, *names: str) -> dict[str, str]:
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names or ["All"])["Attributes"]


def put_topic(service: Service, name: str, options=None, groups=None, tenant="default"):
    """A topic that another protocol makes."""
    change = PutTopic(
        tenant,
        name,
        options or TopicOptions(),
        groups or {"default": GroupOptions()},
        reserved_name=name.startswith("__"),
    )
    return service.run(lambda: service.store.client.administer(change))


# --- CreateQueue -------------------------------------------------------------------------------


def test_create_queue_answers_with_the_url_of_the_host_that_was_asked(service, sqs) -> None:
    url = sqs.create_queue(QueueName="created")["QueueUrl"]
    assert url == f"{service.url}/{ACCOUNT}/created"


def test_create_queue_again_with_the_same_attributes_is_the_same_queue(sqs) -> None:
    attributes = {"VisibilityTimeout": "7", "DelaySeconds": "0"}
    first = sqs.create_queue(QueueName="twice", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=first, MessageBody="kept")
    assert sqs.create_queue(QueueName="twice", Attributes=attributes)["QueueUrl"] == first
    assert sqs.create_queue(QueueName="twice")["QueueUrl"] == first
    assert attributes_of(sqs, first)["ApproximateNumberOfMessages"] == "1"


def test_create_queue_again_with_another_attribute_names_it(sqs) -> None:
    sqs.create_queue(QueueName="differs", Attributes={"VisibilityTimeout": "7"})
    with pytest.raises(sqs.exceptions.QueueNameExists) as caught:
        sqs.create_queue(QueueName="differs", Attributes={"VisibilityTimeout": "8"})
    assert code_of(caught) == "QueueAlreadyExists"
    assert message_of(caught).endswith("a different value for attribute VisibilityTimeout")


def test_an_attribute_that_was_set_since_is_the_one_compared(sqs) -> None:
    url = sqs.create_queue(QueueName="set-since", Attributes={"DelaySeconds": "1"})["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "2"})
    assert sqs.create_queue(QueueName="set-since", Attributes={"DelaySeconds": "2"})
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="set-since", Attributes={"DelaySeconds": "1"})


@pytest.mark.parametrize("name", ["", "two words", "x" * 81, "dots.in.it"])
def test_create_queue_refuses_a_name_that_breaks_the_rules(sqs, name: str) -> None:
    with pytest.raises(ClientError) as caught:
        sqs.create_queue(QueueName=name)
    assert code_of(caught) == "InvalidParameterValue"


def test_create_queue_refuses_a_reserved_name(sqs) -> None:
    with pytest.raises(ClientError) as caught:
        sqs.create_queue(QueueName="__metering")
    assert code_of(caught) == "InvalidParameterValue"
    assert "reserved" in message_of(caught)


def test_create_queue_makes_a_fifo_queue(sqs, make_queue) -> None:
    attributes = attributes_of(sqs, make_queue(fifo=True))
    assert attributes["FifoQueue"] == "true"
    assert attributes["DeduplicationScope"] == "queue"
    assert attributes["ContentBasedDeduplication"] == "false"


def test_two_creations_at_once_make_one_queue(service) -> None:
    clients = [service.client() for _ in range(4)]
    urls: list[str] = []
    threads = [
        threading.Thread(
            target=lambda client=client: urls.append(
                client.create_queue(QueueName="raced", Attributes={"DelaySeconds": "3"})["QueueUrl"]
            )
        )
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 4
    assert len(set(urls)) == 1
    for client in clients:
        client.close()


# --- queues of other protocols -----------------------------------------------------------------


def test_a_topic_that_another_protocol_made_is_a_queue(service, sqs) -> None:
    dead = DeadLetter(router=None, key="elsewhere")
    put_topic(
        service,
        "foreign",
        TopicOptions(message_bytes_max=2048, retention_ms=120_000),
        {"default": GroupOptions(attempts_max=4, dead_letter=dead)},
    )
    url = sqs.get_queue_url(QueueName="foreign")["QueueUrl"]
    attributes = attributes_of(sqs, url)
    assert attributes["VisibilityTimeout"] == "30"
    assert attributes["MaximumMessageSize"] == "2048"
    assert attributes["MessageRetentionPeriod"] == "120"
    assert json.loads(attributes["RedrivePolicy"]) == {
        "deadLetterTargetArn": f"arn:aws:sqs:eu-central-1:{ACCOUNT}:elsewhere",
        "maxReceiveCount": 4,
    }
    assert "CreatedTimestamp" not in attributes


def test_the_first_create_queue_of_a_foreign_topic_is_accepted(service, sqs) -> None:
    options = TopicOptions(declarations={"other": b"kept"})
    put_topic(service, "adopted", options, {"default": GroupOptions(), "more": GroupOptions()})
    asked = {"VisibilityTimeout": "9"}
    url = sqs.create_queue(QueueName="adopted", Attributes=asked)["QueueUrl"]
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "9"
    topic = service.store.client.topic("default", "adopted")
    assert topic is not None
    assert topic.options.declarations["other"] == b"kept"
    assert set(topic.options.declarations) == {"other", ADAPTER}
    assert set(topic.groups) == {"default", "more"}
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="adopted", Attributes={"VisibilityTimeout": "10"})


def test_a_foreign_topic_without_order_cannot_become_a_fifo_queue(service, sqs) -> None:
    put_topic(service, "unordered.fifo")
    with pytest.raises(sqs.exceptions.QueueNameExists) as caught:
        sqs.create_queue(QueueName="unordered.fifo", Attributes={"FifoQueue": "true"})
    assert message_of(caught).endswith("FifoQueue")


@pytest.mark.parametrize("name", ["hidden-one", "__internal", "dots.in.it", "tenant-b"])
def test_what_sqs_may_not_see_does_not_exist(service, sqs, name: str) -> None:
    options = TopicOptions(hidden=name == "hidden-one")
    put_topic(service, name, options, tenant="other" if name == "tenant-b" else "default")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name)
    assert all(not url.endswith(f"/{name}") for url in sqs.list_queues()["QueueUrls"])


def test_a_name_taken_by_a_hidden_topic_cannot_be_created(service, sqs) -> None:
    put_topic(service, "occupied", TopicOptions(hidden=True))
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="occupied")


def test_a_stream_gets_the_group_default_when_it_is_first_received_from(service, sqs) -> None:
    put_topic(service, "stream", TopicOptions(kind=TopicKind.STREAM), {"reports": GroupOptions()})
    url = sqs.get_queue_url(QueueName="stream")["QueueUrl"]
    assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "0"
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="after")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "after"


# --- DeleteQueue, GetQueueUrl, ListQueues ------------------------------------------------------


def test_delete_queue(sqs, make_queue) -> None:
    url = make_queue()
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.send_message(QueueUrl=url, MessageBody="late")
    assert code_of(caught) == "AWS.SimpleQueueService.NonExistentQueue"
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.delete_queue(QueueUrl=url)


def test_a_queue_made_anew_has_neither_messages_nor_settings_of_the_old(sqs) -> None:
    first = {"DelaySeconds": "0", "VisibilityTimeout": "1"}
    url = sqs.create_queue(QueueName="anew", Attributes=first, tags={"a": "b"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="old")
    handle = sqs.receive_message(QueueUrl=url)["Messages"][0]["ReceiptHandle"]
    sqs.delete_queue(QueueUrl=url)
    assert sqs.create_queue(QueueName="anew")["QueueUrl"] == url
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "30"
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)


def test_delete_queue_ends_long_polls(service, sqs, make_queue) -> None:
    url = make_queue()
    other = service.client()
    failures: list[str] = []

    def poll() -> None:
        try:
            other.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        except ClientError as error:
            failures.append(error.response["Error"]["Code"])

    thread = threading.Thread(target=poll)
    thread.start()
    while not service.adapter.statistics().gauges["long_polls"]:
        time.sleep(0.01)
    sqs.delete_queue(QueueUrl=url)
    thread.join(5)
    other.close()
    assert failures == ["AWS.SimpleQueueService.NonExistentQueue"]


def test_get_queue_url(service, sqs, make_queue) -> None:
    make_queue(name="found")
    expected = f"{service.url}/{ACCOUNT}/found"
    assert sqs.get_queue_url(QueueName="found")["QueueUrl"] == expected
    owned = sqs.get_queue_url(QueueName="found", QueueOwnerAWSAccountId=ACCOUNT)
    assert owned["QueueUrl"] == expected
    for missing in ({"QueueName": "lost"}, {"QueueName": "found", "QueueOwnerAWSAccountId": "1"}):
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            sqs.get_queue_url(**missing)


def test_a_queue_of_another_account_does_not_exist(service, sqs, make_queue) -> None:
    make_queue(name="mine")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=f"{service.url}/123456789012/mine", MessageBody="x")


def test_a_bare_name_will_do_for_a_queue_url(sqs, make_queue) -> None:
    url = make_queue(name="bare")
    sqs.send_message(QueueUrl="bare", MessageBody="x")
    (message,) = sqs.receive_message(QueueUrl="bare")["Messages"]
    sqs.delete_message(QueueUrl="bare", ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


@pytest.mark.parametrize("url", ["lost", "no url at all", "http://h/", "http://h/a b/c"])
def test_a_url_that_is_none_is_of_no_queue(sqs, url: str) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
        sqs.send_message(QueueUrl=url, MessageBody="x")
    assert code_of(caught) == "AWS.SimpleQueueService.NonExistentQueue"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_list_queues_in_order_by_prefix_and_in_pages(sqs, make_queue) -> None:
    urls = [make_queue(name=f"listed-{letter}") for letter in "cab"]
    assert sqs.list_queues(QueueNamePrefix="listed-")["QueueUrls"] == sorted(urls)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="unlisted-")
    first = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=2)
    rest = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=2, NextToken=first["NextToken"])
    assert first["QueueUrls"] + rest["QueueUrls"] == sorted(urls)
    assert "NextToken" not in rest
    with pytest.raises(ClientError) as caught:
        sqs.list_queues(MaxResults=2, NextToken="nonsense")
    assert code_of(caught) == "InvalidParameterValue"


# --- attributes --------------------------------------------------------------------------------


def test_get_queue_attributes_of_a_new_queue(sqs, make_queue) -> None:
    before = int(time.time())
    url = make_queue(name="plain")
    attributes = attributes_of(sqs, url)
    for name in ("CreatedTimestamp", "LastModifiedTimestamp"):
        assert before <= int(attributes.pop(name)) <= time.time()
    assert attributes == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": f"arn:aws:sqs:eu-central-1:{ACCOUNT}:plain",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }


def test_only_the_attributes_asked_for_are_given(sqs, make_queue) -> None:
    url = make_queue()
    assert attributes_of(sqs, url, "DelaySeconds", "Policy") == {"DelaySeconds": "0"}
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    with pytest.raises(ClientError) as caught:
        attributes_of(sqs, url, "Colour")
    assert code_of(caught) == "InvalidAttributeName"


def test_the_region_of_an_arn_is_that_of_the_request(service, make_queue) -> None:
    url = make_queue(name="anywhere")
    client = service.client(region="us-west-2")
    arn = attributes_of(client, url, "QueueArn")["QueueArn"]
    client.close()
    assert arn == f"arn:aws:sqs:us-west-2:{ACCOUNT}:anywhere"


def test_the_counts_tell_ready_in_flight_and_delayed_messages(sqs, make_queue) -> None:
    url = make_queue()
    for delay_s in (0, 0, 0, 60, 60):
        sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay_s)
    sqs.receive_message(QueueUrl=url)
    attributes = attributes_of(sqs, url)
    assert attributes["ApproximateNumberOfMessages"] == "2"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "2"


def test_set_queue_attributes_changes_kernel_settings_and_texts(service, sqs, make_queue) -> None:
    url = make_queue(name="settable")
    policy = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow"}]})
    changes = {
        "VisibilityTimeout": "5",
        "MaximumMessageSize": "1024",
        "MessageRetentionPeriod": "60",
        "DelaySeconds": "3",
        "ReceiveMessageWaitTimeSeconds": "2",
        "Policy": policy,
        "KmsMasterKeyId": "alias/key",
        "KmsDataKeyReusePeriodSeconds": "60",
    }
    sqs.set_queue_attributes(QueueUrl=url, Attributes=changes)
    attributes = attributes_of(sqs, url)
    assert attributes.items() >= changes.items()
    assert attributes["SqsManagedSseEnabled"] == "false"
    topic = service.store.client.topic("default", "settable")
    assert topic is not None
    assert topic.options.message_bytes_max == 1024
    assert topic.options.retention_ms == 60_000
    assert topic.groups["default"].lease_ms == 5000
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "", "KmsMasterKeyId": ""})
    left = attributes_of(sqs, url)
    assert not {"Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} & left.keys()


def test_set_queue_attributes_refuses_what_it_cannot_set(sqs, make_queue) -> None:
    url = make_queue()
    for attributes, code in (
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"QueueArn": "x"}, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as caught:
            sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        assert code_of(caught) == code, attributes


# --- PurgeQueue --------------------------------------------------------------------------------


def test_purge_queue_drops_what_waits_and_only_once_a_minute(service, sqs, make_queue) -> None:
    url = make_queue()
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.purge_queue(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress) as caught:
        sqs.purge_queue(QueueUrl=url)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    service.clock.wall_ahead_ms += 61_000
    try:
        sqs.purge_queue(QueueUrl=url)
    finally:
        service.clock.wall_ahead_ms -= 61_000


# --- tags and permissions ----------------------------------------------------------------------


def test_tags_are_added_changed_listed_and_removed(sqs, make_queue) -> None:
    url = sqs.create_queue(QueueName="tagged", tags={"a": "1", "b": "2"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"b": "3", "c": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "1", "b": "3", "c": ""}
    sqs.untag_queue(QueueUrl=url, TagKeys=["a", "nobody"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"b": "3", "c": ""}


def test_a_queue_has_at_most_fifty_tags(sqs, make_queue) -> None:
    url = make_queue()
    sqs.tag_queue(QueueUrl=url, Tags={f"t{number}": "" for number in range(50)})
    with pytest.raises(ClientError) as caught:
        sqs.tag_queue(QueueUrl=url, Tags={"one-more": ""})
    assert code_of(caught) == "InvalidParameterValue"


def test_two_changes_at_once_lose_nothing(service, sqs, make_queue) -> None:
    url = make_queue()
    clients = [service.client() for _ in range(8)]
    threads = [
        threading.Thread(target=client.tag_queue, kwargs={"QueueUrl": url, "Tags": {f"k{n}": ""}})
        for n, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    assert len(sqs.list_queue_tags(QueueUrl=url)["Tags"]) == 8


def test_permissions_are_statements_of_the_policy(sqs, make_queue) -> None:
    url = make_queue(name="permitted")
    arn = f"arn:aws:sqs:eu-central-1:{ACCOUNT}:permitted"
    sqs.add_permission(
        QueueUrl=url, Label="senders", AWSAccountIds=["111111111111"], Actions=["SendMessage"]
    )
    document = json.loads(attributes_of(sqs, url, "Policy")["Policy"])
    assert document["Statement"] == [
        {
            "Sid": "senders",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
            "Action": "SQS:SendMessage",
            "Resource": arn,
        }
    ]
    for refused in (
        {"Label": "senders", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]},
        {"Label": "other", "AWSAccountIds": ["1"], "Actions": ["Dance"]},
        {"Label": "two words", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]},
    ):
        with pytest.raises(ClientError) as caught:
            sqs.add_permission(QueueUrl=url, **refused)
        assert code_of(caught) == "InvalidParameterValue"
    for action, reason in (
        ("CreateQueue", "Only the queue owner is allowed to invoke this action."),
        ("RemovePermission", "Only the queue owner is allowed to invoke this action."),
        ("SendMessageBatch", "Please refer to the appropriate WSDL for a list of valid actions."),
    ):
        with pytest.raises(ClientError) as caught:
            sqs.add_permission(QueueUrl=url, Label="x", AWSAccountIds=["1"], Actions=[action])
        assert caught.value.response["Error"]["Message"] == (
            f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}"
        )
    with pytest.raises(ClientError) as caught:
        sqs.add_permission(
            QueueUrl=url, Label="many", AWSAccountIds=["1"], Actions=["SendMessage"] * 8
        )
    assert code_of(caught) == "OverLimit"
    sqs.remove_permission(QueueUrl=url, Label="senders")
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    with pytest.raises(ClientError) as caught:
        sqs.remove_permission(QueueUrl=url, Label="senders")
    assert code_of(caught) == "InvalidParameterValue"
