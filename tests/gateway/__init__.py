"""Tests of the composition root: configuration, command line, assembly."""
