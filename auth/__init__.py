"""Who may do what: principals, passwords, keys and policies over kernel names.

- `users`: users, access keys and policies as records; how they are found
- `policies`: whether somebody may do something
- `password_checks`: passwords checked in threads; who guesses waits
- `sign_in`: how clients prove who they are: SASL PLAIN, the signatures of AWS and of RocketMQ
- `private_files`: what only the server's user may read: keys, tokens, certificates
- `loopback`: which addresses only this machine reaches
- `principal`: who acts; `errors`: the errors of all of these
"""
