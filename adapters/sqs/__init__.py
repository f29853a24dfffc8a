"""The SQS adapter: AWS JSON 1.0 and Query/XML over one shape table.

`shapes` says what each of the 23 actions takes and gives, and both codecs are built from it (with
`shape_base`). `http` holds a request and a response as plain values, `http_reader` makes them of
bytes; `wire` picks the protocol of a request: `json_codec` or `query_codec` (answers in `xml` or
JSON). `errors` is the error table, `kernel_errors` how the kernel's are worded, `refusal` what is
refused before anybody is asked.

What a request may say is checked in `names`, `validation`, `message_attributes`, `policies` and
`queue_attributes`; `selection` picks the attributes asked for. `md5` computes the digests that SDKs
verify, `receipt_handle` and `paging` wrap opaque tokens. `stored` writes a message, `delivered`
reads one of any protocol; `native`, `body_text` and `attribute_map` are SQS's column of the
message contract (docs/design/model.md#the-message-contract).

The actions: `actions` is their table; `send_actions`, `receive_actions`, `settle_actions`,
`queue_actions`, `tag_actions`, `move_actions` serve them. `gate` says who calls, `queues` finds a
queue, `ready_queue` holds one in ready form, `received` what a receive brings; `queue_settings` and
`declaration` say what attributes are in the kernel; `attempts` and `recents` remember what happened
a moment ago.

`app` answers one request, `connection` and `waiting` are its drivers, `server` is the adapter;
`environment` is what requests share, `calls` counts for the bill, `settings` holds every bound.
"""
