"""What is the context now? One file an estimator."""
