"""The load of one lane: an unmodified client library that publishes, and one that consumes.

A lane is one queue with one publisher and one consumer. `program` is the process; a module for each
protocol says how its library publishes and takes (`port`).
"""
