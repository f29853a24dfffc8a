"""The Spark jobs: each builds data frames by the rules of the module it names.

- `usage_hourly`, `rated_lines`: the rules of `spark.usage` and of `spark.rating`
- `bill`: the entry of spark-submit; `run_tables`: one period; `routed`: the proof of the store's
counters
"""
