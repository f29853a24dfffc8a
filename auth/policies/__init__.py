"""Policies: rules over kernel names, and whether somebody may.

- `policy_rules`: the language of policies
- `policy_decisions`: whether somebody may do something
- `matching`: patterns of names
- `built_in`: policies that exist in every tenant
"""
