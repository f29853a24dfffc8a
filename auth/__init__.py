"""Who may do what: principals, passwords, keys and policies over kernel names.

- `principal`: who acts; `store`, `records`: users, access keys and policies; `directory` finds them
- `policy_decisions`, `policy_rules`: whether somebody may; the language of policies
- `matching`: patterns of names
- `built_in`: policies that exist in every tenant
- `passwords`, `digests`: argon2id in threads, behind a memory of what was checked
- `guessing`, `fair_queue`: who guesses waits; a flood of logins does not keep others out
- `sasl`, `sigv4`, `sigv4_form`, `mqv2`: PLAIN; the signatures of AWS and of RocketMQ
- `sealed`, `files`, `tokens`, `tls`: secrets of keys, private files, the admin token, certificates
- `development`: the login `guest` on loopback
- `errors`: the errors of all of these
"""
