"""The Spark jobs: each builds data frames by the rules of the module it names.

- `usage_hourly`, `rated_lines`: the rules of `spark.usage` and of `spark.rating`
- `bill`: one period; `run_tables`: what it reads and writes; `routed`: the proof of the store's
  counters
"""
