"""From metering records to hourly usage: the rules, and the columns that they speak of.

jobs/usage_hourly.py follows them for files of any size; the tests have them in plain Python as
well (tests/spark/plain_usage.py) and hold the two equal.

1. A record belongs to the period in which its window starts; windows never cross an hour.
2. Records of the period with one identity (node, epoch, seq) and equal content count once; with
   different content they count not at all and go to quarantine. `emitted_at` is no content.
3. kind=store is cumulative: what a record adds is its value less the highest one before it in its
   series (by log index; earlier periods included), and nothing if it fell. A fall is reported.
   A series is a counter of one Raft group from its `cum_since` on.
4. Usage is the sum by dimension and hour. Cumulative bytes are egress for deliver and return, else
   ingress.
5. What was returned is taken off what was delivered, in the hour in which it was counted: there is
   no usage of the action `return`, and that of an hour may be below zero.
"""

from __future__ import annotations

from metering.schema import Action

DIMENSIONS = (
    "tenant", "account", "kind", "protocol", "action", "api_action", "topic", "queue_class",
    "network", "region", "outcome",
)  # fmt: skip
SUMS = (
    "requests", "units_64k", "units_4k", "messages", "bytes_in", "bytes_out", "gauge_integral",
)  # fmt: skip
# What tells one cumulative counter from another.
SERIES = (
    "raft_group", "cum_since", "tenant", "protocol", "action", "topic", "group", "queue_class",
)  # fmt: skip
# And the order of its records: by log index; the rest only makes the order complete.
CUMULATIVE_ORDER = (
    "log_index", "cum_messages", "cum_bytes", "cum_units_4k", "node", "epoch", "seq",
)  # fmt: skip

# What one end offset belongs to: a topic's queues in one Raft group, since they were made.
PROOF = ("tenant", "topic", "raft_group", "cum_since")

EGRESS = (Action.DELIVER, Action.RETURN)
