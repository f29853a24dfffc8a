"""Weir's tests, one folder per package of the product."""
