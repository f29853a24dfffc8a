"""Programs that Debian's clients run, unmodified, against a whole broker."""
