"""Refusals of messages, with their reasons, where several modules say the same."""

from __future__ import annotations

from ..common.errors import Code, KernelError
from ..common.limits import RETAINED_MAX
from .model import TopicInfo

FULL = KernelError(Code.REJECTED, "the topic is full")

NO_SPACE = KernelError(Code.NO_SPACE, "free disk is below the mark for new messages")

TOO_MANY_RETAINED = KernelError(
    Code.LIMIT_EXCEEDED, f"a tenant has {RETAINED_MAX} retained messages"
)


def too_large_for(topic: TopicInfo, body_bytes: int) -> str:
    """A body is above the limit of a topic."""
    most = topic.options.message_bytes_max
    return f"topic {topic.name}: a body of {body_bytes} bytes; at most {most} (message_bytes_max)"
