"""Definitions: how a process without a store knows them, and how it has them changed."""
