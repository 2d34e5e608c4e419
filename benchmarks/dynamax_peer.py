"""A model of ours as dynamax's."""

from __future__ import annotations

from typing import Any

import numpy as np


def parameters_at(dynamax: Any, model: Any, first_mean: Any, first_cov: Any) -> Any:
    """Its parameters, with the belief about x_1 given."""
    ssm = dynamax.LinearGaussianSSM(model.latent, model.observed, has_dynamics_bias=False, has_emissions_bias=False)
    parameters, _ = ssm.initialize(
        initial_mean=first_mean,
        initial_covariance=first_cov,
        dynamics_weights=np.asarray(model.transition),
        dynamics_covariance=np.asarray(model.process_cov),
        emission_weights=np.asarray(model.observation),
        emission_covariance=np.asarray(model.observation_cov),
    )
    return parameters
