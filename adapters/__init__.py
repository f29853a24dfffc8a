"""The protocol adapters: one package per protocol, and none of them knows another."""
