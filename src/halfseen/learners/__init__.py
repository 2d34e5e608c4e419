"""What does each arm pay in a context? One file a learner."""
