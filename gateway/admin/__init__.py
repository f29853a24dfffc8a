"""The admin side of a node over HTTP: health, metrics, and the API that `weir` and people use."""
