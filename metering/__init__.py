"""Counting what was served, per tenant, so that it can be billed and proved."""
