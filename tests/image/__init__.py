"""The image of the Containerfile, built and served: `make test-image`."""
