"""The estimator that learns its model from the history of the stream."""
