"""The decision service. It answers a request only after the events of the request are on disk."""
