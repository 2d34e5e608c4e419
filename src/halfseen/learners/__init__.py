"""The learners: each file contains one way to predict the rewards of the arms."""
