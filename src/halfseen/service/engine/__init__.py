"""The engine. It turns requests into journal events, and events into the state of streams."""
