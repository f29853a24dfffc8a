"""Who may do what: principals, passwords, keys and policies over kernel names."""
