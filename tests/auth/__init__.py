"""Tests of auth/."""
