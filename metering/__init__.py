"""Counting what was served, per tenant, so that it can be billed and proved.

- `counters`, `traffic`, `calls`: the gateway's meter, as adapters use it
- `store_meter`, `store_source`: what the state machines have counted (docs/design/billing.md)
- `window`, `collector`, `driver`: windows of time, flushed and acknowledged
- `topic`: the topic `__metering`, where flushes go
- `exporter`, `lineage`, `parquet`: from there to the archive that the bill reads
- `schema`: what is written and read: all that `spark` knows of this package
"""
