"""RabbitMQ's definitions.json, as definitions of ours (`adapters.definitions`).

- `rabbit_definitions`: the document, thing by thing, and what of it has no equal
- `rabbit_rights`: users with their permissions, as users and policies
- `name_patterns`: RabbitMQ's regular expressions of names, as patterns of policies
"""
