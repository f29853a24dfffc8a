"""`python -m gateway` is the command `weir`."""

from __future__ import annotations

from gateway.cli import main

if __name__ == "__main__":
    main()
