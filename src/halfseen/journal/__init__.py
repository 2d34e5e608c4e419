"""The journal: the events of all streams, stored durably in SQLite or PostgreSQL."""
