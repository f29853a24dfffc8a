"""Pulls: a receive of a gateway is carried out by the leaders of the queues."""
