"""Fair queues: a MessageGroupId on a standard queue, through boto3, against a whole service."""

from __future__ import annotations

from tests.adapters.sqs.test_service_messages import receive


def send(sqs, url: str, *tenants: str) -> None:
    for start in range(0, len(tenants), 10):
        entries = [
            {"Id": str(at), "MessageBody": tenant}
            | ({"MessageGroupId": tenant} if tenant != "nobody" else {})
            for at, tenant in enumerate(tenants[start : start + 10])
        ]
        assert not sqs.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")


def take(sqs, url: str, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        messages = receive(
            sqs, url, MaxNumberOfMessages=min(10, count - len(found)), VisibilityTimeout=600
        )
        assert messages
        assert all(
            each["Attributes"].get("MessageGroupId", "nobody") == each["Body"] for each in messages
        )
        found += [each["Body"] for each in messages]
    return found


def test_quiet_tenants_are_served_before_the_backlog_of_a_noisy_one(sqs, make_queue) -> None:
    url = make_queue()
    send(sqs, url, *["noisy"] * 60)
    assert take(sqs, url, 30) == ["noisy"] * 30
    send(sqs, url, "quiet", "nobody", "other", *["noisy"] * 5, "quiet")
    assert take(sqs, url, 4) == ["quiet", "nobody", "other", "quiet"]
    assert take(sqs, url, 35) == ["noisy"] * 35
    assert receive(sqs, url) == []


def test_what_a_noisy_tenant_has_in_flight_can_be_deleted_and_comes_again(sqs, make_queue) -> None:
    url = make_queue()
    send(sqs, url, *["noisy"] * 41)
    held = [
        each
        for _ in range(4)
        for each in receive(sqs, url, MaxNumberOfMessages=10, VisibilityTimeout=600)
    ]
    send(sqs, url, "quiet")
    assert take(sqs, url, 1) == ["quiet"]
    for each in held[:20]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    for each in held[20:]:
        sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
        )
    assert take(sqs, url, 21) == ["noisy"] * 21
    assert receive(sqs, url) == []
