"""The decision service: streams of decisions whose every event is on disk before it is answered."""
