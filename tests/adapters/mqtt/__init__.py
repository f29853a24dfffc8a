"""Tests of the MQTT adapter's sans-I/O half. Docstrings cite the statements of the specification."""
