"""The billing jobs: from metering records in Parquet to invoices, run by Spark.

Reads metering.schema and nothing else of Weir, so that a cluster needs no gateway. Everything but
`session` and `jobs` is plain Python: importing it needs neither pyspark nor Java.
"""
