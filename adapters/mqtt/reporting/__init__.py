"""What operators and the bill are told.

- `closings`: why connections end, counted by reason and logged so often a minute
- `traffic`: deliveries by QoS, messages for nobody, octets: for the bill
"""
