"""The durable record of streams: append-only events in one schema, on SQLite or PostgreSQL."""
