"""The console: pages for people, in a browser, over the admin API alone.

- `pages`: the files in `static`, which are ours, whole and without data
- `browser_sessions`: who has signed in, and until when
- `session_routes`: signing in and out, over HTTP
"""
