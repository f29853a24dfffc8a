"""The billing jobs: from metering records in Parquet to invoices, run by Spark.

Reads metering.schema and nothing else of Weir, so that a cluster needs no gateway. Everything but
`session` and `jobs` is plain Python: importing it needs neither pyspark nor Java.

- `bill`: one period, billed; `archive`, `period`: what it reads, and of when
- `usage`, `metered`: from records to hourly usage
- `pricebook`, `rating`, `currency`, `invoice`: prices, lines, invoices
- `java`, `session`: what Spark runs on
- `jobs`: the same rules as Spark plans
"""
