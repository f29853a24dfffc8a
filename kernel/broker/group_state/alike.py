"""Settings that many topics have in common, kept once: a million queues have a handful of kinds.

What is equal becomes the same object, which nobody changes. What is kept here is bounded: beyond
ALIKE_MAX kinds it is forgotten, and begins again.
"""

from __future__ import annotations

import msgspec

from ...api.model import GroupOptions, TopicOptions

ALIKE_MAX = 4_096
"""Kinds of settings that are known at a time: some 2 MB, far more than clients tell apart."""

_encoder = msgspec.msgpack.Encoder()
_options: dict[bytes, TopicOptions] = {}
_groups: dict[bytes, dict[str, GroupOptions]] = {}


def alike_options(options: TopicOptions) -> TopicOptions:
    """Equal options: the object that stands for all of them."""
    if len(_options) >= ALIKE_MAX:
        _options.clear()
    return _options.setdefault(_encoder.encode(options), options)


def alike_groups(groups: dict[str, GroupOptions]) -> dict[str, GroupOptions]:
    """Equal groups of a topic, in the same order: the dict that stands for all of them."""
    if len(_groups) >= ALIKE_MAX:
        _groups.clear()
    return _groups.setdefault(_encoder.encode(groups), groups)
