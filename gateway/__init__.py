"""The composition root: the only package that knows every other one.

It reads the settings, assembles the roles a process plays, and offers the command line. Nothing
imports it.
"""

from __future__ import annotations

__version__ = "0.1.0"
