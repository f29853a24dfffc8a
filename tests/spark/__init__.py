"""Billing: the rules in plain Python, and the Spark job that has to agree with them."""
