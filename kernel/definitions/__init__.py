"""How topics, routers and routes are made, changed and removed.

- `definer`: the rules, wherever a thing lives
- `definition_checks`: what a change must keep to
- `sizes`, `automatic_size`: what may be published to a topic, and how many queues that takes; when
  that is to change by itself; `topic_sizes`: for which topics it does;
  `sizing`: who has them resized then
- `topic_traces`, `tracing`: which topics are traced; who has their leaders note it
- `topic_records`: what the records of both have in common
- `queue_placement`: in which groups the queues of a new topic are
- `administration`: changes of what is durable, over the Raft groups they touch
- `transient_definitions`: changes of what lives in the memory of one process
- `clearing`: removal of routes to what is gone
- `resizing`: other queues for a topic; `window_hand_over`: what theirs know of deduplication ids
- `repairing`: mends changes that were never finished
"""
