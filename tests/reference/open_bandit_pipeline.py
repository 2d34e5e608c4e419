"""A small log, and what Open Bandit Pipeline 0.5.7 (class names in `main`) estimates from it.

The numbers in tests/evaluation/test_open_bandit_pipeline.py were printed by these commands. Open Bandit Pipeline pins
old versions of its dependencies, so it is installed without them. PyTorch is not used by the estimators.

    python -m venv /tmp/obp
    /tmp/obp/bin/pip install --no-deps --ignore-requires-python obp==0.5.7
    /tmp/obp/bin/pip install scikit-learn pandas matplotlib seaborn tqdm pyyaml
    cd tests && /tmp/obp/bin/python -m reference.open_bandit_pipeline
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np

ROUNDS, ARMS, BLOCKS = 200, 3, 10
THRESHOLDS = [*(2.0**power for power in range(1, 11)), np.inf]


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def small_log():
    """Return observations, arms, propensities, rewards, and the probabilities of a policy with some large weights."""
    rng = np.random.default_rng(4)
    y = rng.uniform(-2.0, 2.0, size=(ROUNDS, 2))
    propensities = softmax(y @ np.array([[1.6, -1.2, 0.2], [0.9, 0.4, -1.3]]))
    arms = (rng.random((ROUNDS, 1)) > np.cumsum(propensities, axis=1)[:, :-1]).sum(axis=1)
    means = np.sin(2.0 * y[:, :1]) * np.array([1.0, -1.0, 0.5]) + y @ np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6]])
    rewards = means[np.arange(ROUNDS), arms] + rng.uniform(-1.0, 1.0, size=ROUNDS)
    policy = softmax(y @ np.array([[-1.0, 0.8, 0.5], [0.2, -0.5, 0.9]]))
    return SimpleNamespace(y=y, arms=arms, propensities=propensities, rewards=rewards, policy=policy)


def main():
    torch = MagicMock(Tensor=type("Tensor", (), {}))
    torch.nn.Module = torch.utils.data.Dataset = object  # base classes
    names = ("torch", "torch.nn", "torch.nn.functional", "torch.optim")
    sys.modules |= dict(zip(names, (torch, torch.nn, torch.nn.functional, torch.optim), strict=True))
    from obp import ope
    from sklearn.linear_model import Ridge

    class RegressionPerArm(ope.RegressionModel):
        def _pre_process_for_reg_model(self, context, action, action_context):
            return (action_context[action][:, :, None] * context[:, None, :]).reshape(len(context), -1)

    log, rows = small_log(), np.arange(ROUNDS)
    pscore, action_dist = log.propensities[rows, log.arms], log.policy[:, :, None]
    features = np.column_stack([np.ones(ROUNDS), (log.y - log.y.mean(axis=0)) / log.y.std(axis=0)])

    def predicted(method):
        found = np.zeros((ROUNDS, ARMS, 1))
        for block in np.array_split(rows, BLOCKS):
            others = np.setdiff1d(rows, block)
            chosen = log.policy[others, log.arms[others]]
            used = chosen * (1 - pscore[others]) / pscore[others] ** 2 if method == "mrdr" else np.ones(len(others))
            mean = used @ log.rewards[others] / used.sum()
            base = Ridge(alpha=used.mean(), fit_intercept=False)  # a penalty of 1 if the mean weight is 1
            model = RegressionPerArm(base_model=base, n_actions=ARMS, fitting_method=method)
            data = {"context": features[others], "action": log.arms[others], "reward": log.rewards[others] - mean}
            model.fit(**data, pscore=pscore[others], action_dist=action_dist[others])
            found[block] = mean + model.predict(features[block])
        return found

    given = {"reward": log.rewards, "action": log.arms, "pscore": pscore, "action_dist": action_dist}
    given |= {"position": np.zeros(ROUNDS, dtype=int)}
    plain = {"estimated_rewards_by_reg_model": predicted("normal")}
    tuning = {"lambdas": THRESHOLDS, "tuning_method": "mse", "use_bias_upper_bound": False}
    estimates = {
        "dr": ope.DoublyRobust().estimate_policy_value(**given, **plain),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**given),
        "ips": ope.InverseProbabilityWeighting().estimate_policy_value(**given),
        "dm": ope.DirectMethod().estimate_policy_value(action_dist=action_dist, **plain),
    }
    for name, tuned in (("switch_dr", ope.SwitchDoublyRobustTuning), ("clipped_dr", ope.DoublyRobustTuning)):
        estimator = tuned(**tuning)
        estimates[name] = estimator.estimate_policy_value(**given, **plain)
        print(name, "threshold", estimator.best_hyperparam)
    more_robust = {"estimated_rewards_by_reg_model": predicted("mrdr")}
    estimates["mrdr"] = ope.DoublyRobust().estimate_policy_value(**given, **more_robust)
    for name, value in estimates.items():
        print(f'    "{name}": {value:.12f},')


if __name__ == "__main__":
    main()
