"""Style as tests: sizes, names, paths, generated pages, packaging."""
