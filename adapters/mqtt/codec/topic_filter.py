"""Topic filters: their rules, shared subscriptions and matching.

    sport/+/score    '+' stands for one whole level, empty ones included
    sport/#          '#' stands for the level before it and everything below; it comes last
    $share/g/filter  the shared subscription of group g on filter (MQTT5 4.8.2)

Names and filters are compared as they are: nothing is trimmed, folded or normalised
([MQTT-4.7.3-4]), so a leading or trailing '/' makes an empty level of its own. Matching one filter
with one name is here; matching a name with very many filters is the kernel's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import TEXT_BYTES_MAX, TOPIC_LEVELS_MAX

SHARE_PREFIX: Final = "$share/"


class FilterError(MqttError):
    """A text that is no filter in any version: what MQTT 5 refuses alone (0x8F), and what closes
    the connection before it (MQTT3.1.1 4.7.1, 4.7.3, 4.8).
    """


class TopicFilter(msgspec.Struct, frozen=True):
    """A valid filter. `share_name` is "" for a subscription of one's own."""

    share_name: str
    # Without the $share prefix; what names are matched with.
    pattern: str
    levels: tuple[str, ...]

    @property
    def has_wildcard(self) -> bool:
        return "+" in self.levels or "#" in self.levels

    def matches(self, name: str) -> bool:
        """Whether the topic `name` falls under this filter (MQTT5 4.7.1, 4.7.2)."""
        if not self.has_wildcard:
            return name == self.pattern
        return _matches(self.levels, name.split("/"))


def parse_filter(text: str, levels_max: int = TOPIC_LEVELS_MAX) -> TopicFilter:
    """The filter in `text`, which is UTF-8 text as the codec delivers it.

    Raises FilterError if it is empty or too long, misplaces a wildcard ([MQTT-4.7.1-1],
    [MQTT-4.7.1-2]), or is a shared subscription without a proper name or without a filter
    ([MQTT-4.8.2-1], [MQTT-4.8.2-2]); MqttError 0x8F if it has more than `levels_max` levels.
    """
    share_name = ""
    pattern = text
    if is_shared(text):
        share_name, separator, pattern = text[len(SHARE_PREFIX) :].partition("/")
        if not share_name or "+" in share_name or "#" in share_name:
            raise _invalid("the share name is empty or holds a wildcard")
        if not separator:
            raise _invalid("a shared subscription has no filter")
    if not pattern:
        raise _invalid("a topic filter is empty")
    if len(text) * 4 > TEXT_BYTES_MAX and len(text.encode()) > TEXT_BYTES_MAX:
        raise _invalid(f"a topic filter is longer than {TEXT_BYTES_MAX} bytes")
    # Counted first: a packet of the greatest size holds sixteen million levels.
    if pattern.count("/") >= levels_max:
        detail = f"a topic filter has more than {levels_max} levels"
        raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, detail)
    levels = tuple(pattern.split("/"))
    if "+" in pattern or "#" in pattern:
        _check_wildcards(levels)
    return TopicFilter(share_name, pattern, levels)


def is_shared(text: str) -> bool:
    """Whether a filter asks for a shared subscription, be it a valid one or not."""
    return text.startswith(SHARE_PREFIX)


def _check_wildcards(levels: tuple[str, ...]) -> None:
    last = len(levels) - 1
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != last):
            raise _invalid("'#' is not the whole last level")
        if "+" in level and level != "+":
            raise _invalid("'+' is not a whole level")


def _matches(levels: tuple[str, ...], name: list[str]) -> bool:
    # Filters that begin with a wildcard do not see names like $SYS ([MQTT-4.7.2-1]).
    if name[0].startswith("$") and levels[0] in ("+", "#"):
        return False
    for index, level in enumerate(levels):
        if level == "#":
            return True
        if index >= len(name) or level not in ("+", name[index]):
            # "sport/#" also stands for "sport" itself.
            return False
    return len(levels) == len(name)


def _invalid(detail: str) -> FilterError:
    return FilterError(ReasonCode.TOPIC_FILTER_INVALID, detail)
