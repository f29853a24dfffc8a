"""Both protocols of SQS over one table of shapes.

- `shapes`: what each of the 23 actions takes and gives
- `shape_base`: what that table is made of, and how the codecs read it
- `request_protocol`: which protocol a request speaks
- `json_codec`: AWS JSON 1.0: all current SDKs
- `query_codec`: the Query protocol: older SDKs, curl, pre-signed URLs
- `xml`: answers of the Query protocol
"""
