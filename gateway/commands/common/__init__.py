"""What commands share.

- `api`: calls of the admin API
- `reaching`: whom to believe that they are the server, and what is said of one that is not
- `contexts`: servers by name, kept in a file
- `options`: options that several commands have; the settings they are about
- `documents`: files that people write, as the JSON that a server is sent
- `values`: texts to values, and questions to whoever types
- `output`: answers as a table or JSON; exit codes
"""
