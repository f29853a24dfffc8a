"""The world in a process: simulated disk (and later clock and network), as functions of a seed."""
