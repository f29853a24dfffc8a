"""Users, access keys and policies: what is stored of them, and how they are found.

- `records`: what they are
- `store`: all of them, as the kernel's metadata records say
- `directory`: finds users, keys and secrets for whoever signs in
- `development`: the login `guest` on loopback
"""
