"""RocketMQ's column of the message contract (docs/design/model.md#the-message-contract).

- `stored`: what a send writes, and what others may read in it
- `delivered`: a stored message, by whatever protocol it was written, as a Message
- `checks`: what a message must be like to be sent
- `topic_types`: normal, FIFO, delayed, transactional: the message types of a topic
"""
