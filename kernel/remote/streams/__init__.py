"""Push streams: a consumer of a gateway has a stream at the leader of each of its queues."""
