"""apache.rocketmq.v2 as bytes.

- `stubs`: the generated messages: the one module that touches code without types
- `answer_encoding`: answers as bytes: a protobuf writer, and every answer made with it
- `plain_sends`: sends of plain messages, taken apart without looking at every field (hot)
- `receipt_handle`: a lease token of the kernel as text, bound to its topic and group
"""
