"""Us beside our peers and a plain NumPy baseline, in one run. `make bench`, or `halfseen bench [JOB …]`."""
