"""What is defined, as one document (`adapters.definitions`): written, compared with what there is,
applied.

- `things`: a document taken apart into things with a kind, a tenant and a name
- `known`: the things that a server has
- `writing`: a document of them, while it is sent
- `planning`: what a document would change, and what of it cannot be
- `checks`: why a thing of a document cannot be had here
- `applying`: the changes, made
"""
