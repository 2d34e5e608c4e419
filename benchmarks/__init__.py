"""Benchmarks of halfseen, other libraries and plain NumPy. Run them with `make bench` or `halfseen bench [JOB …]`."""
