"""The settings of one process, and what they mean.

- `loading`: read, merged, checked, and traceable to who said what
- `schema`: the shape of the settings: what protocols.yaml may say, as frozen types
- `schema_types`: what is a section, which keys it has, what a value must look like
- `path`: where a setting stands, and what is wrong with it
- `source`: the shipped file, an overlay, the environment, flags
- `merge`: sources laid over one another, each change checked as it is made
- `check`: rules that no single value shows
- `declared`: what the adapters that the settings name say of themselves (docs/adapter.md)
- `cluster_settings`: who the peers are, what the secret is, which rules hold
- `limits`: what tenants, users, topics and listeners may use
- `tenants`: what each protocol calls a tenant
- `exposure`: what other machines could read or do without signing in
"""
