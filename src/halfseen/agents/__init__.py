"""Agents composed of an estimator, a learner and a chooser, fleets of many streams, and the catalogue of agents."""
