"""An estimator, a learner and a chooser composed: one stream, many streams, the catalogue."""
