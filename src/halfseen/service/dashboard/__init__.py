"""The page at /: its files, and the routes that feed it."""
