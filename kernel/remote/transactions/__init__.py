"""Transactions and half messages of gateways, carried out by the leader of one group."""
