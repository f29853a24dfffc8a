"""The SQS adapter: AWS JSON 1.0 and Query/XML over one shape table.

`shapes` says what each of the 23 actions takes and gives, and both codecs are built from it (with
`shape_base`). `http` holds a request and a response as plain values; `wire` picks the protocol of
a request: `json_codec` or `query_codec` (answers in `xml` or JSON). `errors` is the error table.
What a request may say is checked in `names`, `validation` and `queue_attributes`; `selection`
picks the attributes asked for. `md5` computes the digests that SDKs verify, `receipt_handle` and
`paging` wrap opaque tokens, `body_text` and `attribute_map` hold SQS's column of the message
contract (docs/design/model.md#the-message-contract).
"""
