"""Where the work of an experiment is done: this process, several processes, or a cluster."""
