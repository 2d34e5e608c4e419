"""The estimator that is told nothing and learns its model from the history of the stream."""
