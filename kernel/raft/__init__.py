"""Consensus, sans-I/O: propose, make stable, commit, apply."""
