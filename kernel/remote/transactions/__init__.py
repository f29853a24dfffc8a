"""Half messages of gateways: questions about them, which leaders ask and producers answer.

- `halves`, `half_service`, `half_wire`: questions about half messages: the gateway's side, the
  store's side, as bytes
"""
