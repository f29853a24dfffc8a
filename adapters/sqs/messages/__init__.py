"""SQS's column of the message contract (docs/design/model.md#the-message-contract).

- `stored`: what a send writes; `native` is the block that a reader over SQS gets back exactly
- `delivered`: a stored message, by whatever protocol it was written, as a Message
- `body_text`: a stored body as text, and back
- `attribute_map`: attributes of any protocol as message attributes, and back
- `message_attributes`: the rules for message attributes
- `selection`: which attributes a receive asked for
- `md5`: the digests that SDKs compute again
- `receipt_handle`: a lease token of the kernel as text
- `attempts`: ReceiveRequestAttemptId: a receive from a FIFO queue, asked for again
"""
