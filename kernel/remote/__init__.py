"""The port `kernel.requests.leader.Leader` across processes (ADR 9): gateways ask, stores serve."""
