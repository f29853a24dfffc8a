"""What a restart of the whole process keeps."""

from __future__ import annotations

import json

from tests.adapters.sqs.service import service_in_thread

ARN = "arn:aws:sqs:eu-central-1:000000000000:"


def receive(sqs, name: str, **options):
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    result = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["All"],
        **options,
    )
    return result.get("Messages", [])


def test_queues_messages_and_leases_survive(tmp_path) -> None:
    with service_in_thread(tmp_path) as service:
        sqs = service.client()
        policy = json.dumps({"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": 3})
        sqs.create_queue(QueueName="dead")
        url = sqs.create_queue(
            QueueName="kept",
            Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "2", "DelaySeconds": "0"},
            tags={"team": "a"},
        )["QueueUrl"]
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        for body in ("deleted", "in flight", "extended", "waiting"):
            sqs.send_message(QueueUrl=url, MessageBody=body)
        deleted, _, extended = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=3)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=deleted["ReceiptHandle"])
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=extended["ReceiptHandle"], VisibilityTimeout=60
        )
        sqs.close()

    with service_in_thread(tmp_path) as service:
        sqs = service.client()
        url = sqs.get_queue_url(QueueName="kept")["QueueUrl"]
        after = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        counts = {name for name in before if name.startswith("Approximate")}
        assert {name: after[name] for name in before if name not in counts} == {
            name: before[name] for name in before if name not in counts
        }
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
        assert [message["Body"] for message in receive(sqs, "kept", VisibilityTimeout=60)] == [
            "waiting"
        ]
        # Its lease of before the restart ends when it would have ended.
        (again,) = receive(sqs, "kept", WaitTimeSeconds=10)
        assert again["Body"] == "in flight"
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"
        # A handle of before the restart still deletes.
        sqs.delete_message(QueueUrl=url, ReceiptHandle=extended["ReceiptHandle"])
        names = ["", "NotVisible"]
        asked = ["ApproximateNumberOfMessages" + name for name in names]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
        assert [found[name] for name in asked] == ["0", "2"]
        sqs.close()


def test_fifo_order_blocking_and_deduplication_survive(tmp_path) -> None:
    def send(sqs, url: str, body: str) -> dict[str, str]:
        return sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body
        )

    with service_in_thread(tmp_path) as service:
        sqs = service.client()
        url = sqs.create_queue(QueueName="o.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        sent = [send(sqs, url, body) for body in ("1", "2")]
        (first,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=60)["Messages"]
        sqs.close()

    with service_in_thread(tmp_path) as service:
        sqs = service.client()
        url = sqs.get_queue_url(QueueName="o.fifo")["QueueUrl"]
        again = send(sqs, url, "2")
        assert again["MessageId"] == sent[1]["MessageId"]
        assert again["SequenceNumber"] == sent[1]["SequenceNumber"]
        assert receive(sqs, "o.fifo") == []
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        assert [message["Body"] for message in receive(sqs, "o.fifo")] == ["2"]
        sqs.close()
