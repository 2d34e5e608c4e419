"""Requests become events in the journal, and events become the state of streams."""
