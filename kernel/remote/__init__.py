"""The port `kernel.leader.Leader` across processes (ADR 9): gateways ask, stores serve."""
