"""Tests of the MQTT adapter's sans-I/O half; docstrings cite the specification's statements."""
