"""Us beside our peers and a plain NumPy baseline, in one run. `make bench`, or `python -m benchmarks [job …]`."""
