"""Push streams: a consumer of a gateway has a stream at the leader of each of its queues, which is
a store, or the gateway in whose memory the queue is.

- the consumer's side: `streams`, `parts` (one consumer, its queues and credit), `stream_batches`
  (what is sent in one turn of the loop), `pulls` (receives for a session)
- the leader's side: `stream_service`, `gateways` (who consumes), `settling`, `takes` (receives for
  a session), `led_groups` (what they ask of the process that leads)
- `claims`: how long a new leader waits for what gateways hold
- `stream_wire`: as bytes
"""
