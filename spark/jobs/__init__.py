"""The Spark jobs: each builds data frames by the rules of the module it names."""
