"""HTTP/1.1 as plain values, without I/O. The connection is `adapters.sqs.connection`.

- `request_response`: a request and a response, between the driver and the codecs
- `request_reader`: requests from bytes, by httptools' parser, with bounds
- `refusal`: why requests are refused before any action sees them: counted and logged
"""
