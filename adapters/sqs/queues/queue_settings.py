"""Queue attributes as kernel settings, and back.

    attribute                 kernel
    VisibilityTimeout         GroupOptions.lease_ms of the group `default`
    MaximumMessageSize        TopicOptions.message_bytes_max
    MessageRetentionPeriod    TopicOptions.retention_ms
    RedrivePolicy             GroupOptions.attempts_max, .dead_letter
    FifoQueue                 GroupOptions.ordered, TopicOptions.deduplication_ms
    all others                the declaration alone (`declaration`)

The kernel's settings are what GetQueueAttributes shows, whoever set them last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kernel.api.model import (
    DEFAULT_GROUP,
    DeadLetter,
    GroupOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)

from .. import names
from ..settings import DEDUPLICATION_MS
from . import policies, queue_attributes
from .declaration import declaration_of
from .queue_attributes import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .policies import RedrivePolicy

NO_GROUP: Final = GroupOptions()
"""Of a stream from which nobody has received over SQS yet: the group is made on first use."""


def group_of(topic: TopicInfo) -> GroupOptions:
    """Settings of the group that SQS consumes."""
    return topic.groups.get(DEFAULT_GROUP, NO_GROUP)


def new_topic(
    attributes: Mapping[str, str], redrive: RedrivePolicy | None, *, fifo: bool, queue_count: int
) -> tuple[TopicOptions, GroupOptions]:
    """Kernel settings of a new queue. `attributes`: checked; those left out have their default.
    What is deduplicated as a whole has one kernel queue, whatever `queue_count` says: each of
    several would know its own ids only.
    """
    complete = queue_attributes.defaults(fifo=fifo) | dict(attributes)
    topic = TopicOptions(
        kind=TopicKind.WORK,
        queues=1 if queue_attributes.is_deduplicated_as_a_whole(complete) else queue_count,
        deduplication_ms=DEDUPLICATION_MS if fifo else None,
    )
    group = GroupOptions(ordered=fifo)
    return changed(topic, group, complete, redrive)


def changed(
    topic: TopicOptions,
    group: GroupOptions,
    attributes: Mapping[str, str],
    redrive: RedrivePolicy | None,
) -> tuple[TopicOptions, GroupOptions]:
    """Kernel settings after a change of attributes. `redrive`: the RedrivePolicy among them."""
    if (size := attributes.get("MaximumMessageSize")) is not None:
        topic = msgspec.structs.replace(topic, message_bytes_max=int(size))
    if (retention := attributes.get("MessageRetentionPeriod")) is not None:
        topic = msgspec.structs.replace(topic, retention_ms=int(retention) * 1000)
    if (visibility := attributes.get("VisibilityTimeout")) is not None:
        group = msgspec.structs.replace(group, lease_ms=int(visibility) * 1000)
    if "RedrivePolicy" in attributes:
        group = msgspec.structs.replace(
            group,
            attempts_max=None if redrive is None else redrive.receive_count_max,
            dead_letter=None if redrive is None else DeadLetter(None, redrive.target.name),
        )
    return topic, group


def attributes_of(topic: TopicInfo, arn_of: Callable[[str], str]) -> dict[str, str]:
    """Every settable attribute of a queue as it stands; `arn_of` gives the ARN of a queue's name.

    What SQS has no word for (a dead-letter router, no retention) is left out.
    """
    declaration = declaration_of(topic.options)
    group = group_of(topic)
    fifo = names.is_fifo(topic.name)
    attributes = queue_attributes.defaults(fifo=fifo) | declaration.attributes
    attributes["VisibilityTimeout"] = str(group.lease_ms // 1000)
    attributes["MaximumMessageSize"] = str(min(topic.options.message_bytes_max, MESSAGE_BYTES_MAX))
    if topic.options.retention_ms is None:
        del attributes["MessageRetentionPeriod"]
    else:
        attributes["MessageRetentionPeriod"] = str(topic.options.retention_ms // 1000)
    redrive = _redrive_text(attributes.pop("RedrivePolicy", None), group, arn_of, fifo=fifo)
    if redrive is not None:
        attributes["RedrivePolicy"] = redrive
    return attributes


def dead_letter_queue(topic: TopicInfo) -> str | None:
    """Name of the queue that a queue's dead letters go to straight; None if there is none."""
    target = group_of(topic).dead_letter
    return target.key if target is not None and target.router is None else None


def _redrive_text(
    declared: str | None, group: GroupOptions, arn_of: Callable[[str], str], *, fifo: bool
) -> str | None:
    """The RedrivePolicy as it was written, while the kernel still holds the same."""
    dead_letter = group.dead_letter
    if dead_letter is None or dead_letter.router is not None or dead_letter.key is None:
        return None
    if group.attempts_max is None:
        return None
    if declared is not None:
        policy = policies.parse_redrive_policy(declared, fifo=fifo)
        held = (dead_letter.key, group.attempts_max)
        if (policy.target.name, policy.receive_count_max) == held:
            return declared
    document = {
        "deadLetterTargetArn": arn_of(dead_letter.key),
        "maxReceiveCount": group.attempts_max,
    }
    return msgspec.json.encode(document).decode()
