"""Distribution functions equal those of scipy.stats, which a decision does not import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from halfseen.statistics import distributions as dist

DOF = np.array([0, 1, 2, 3.5, 10, 250, 1e5])
PROBABILITIES = np.array([1e-12, 1e-4, 0.025, 0.5, 0.975, 1 - 1e-9])
POINTS = np.array([0.0, 1e-3, 0.7, 2.0, 30.0, 400.0])


@pytest.mark.parametrize(
    ("mine", "theirs", "x"),
    [
        (dist.student_quantile, stats.t.ppf, PROBABILITIES),
        (dist.student_sf, stats.t.sf, POINTS),
        (dist.chi2_quantile, stats.chi2.ppf, PROBABILITIES),
        (dist.chi2_cdf, stats.chi2.cdf, POINTS),
        (dist.chi2_sf, stats.chi2.sf, POINTS),
    ],
)
def test_distributions_with_degrees_of_freedom(mine, theirs, x):
    np.testing.assert_array_equal(mine(x[:, None], DOF), theirs(x[:, None], DOF))


def test_the_normal_distribution():
    np.testing.assert_array_equal(dist.normal_quantile(PROBABILITIES), stats.norm.ppf(PROBABILITIES))
    np.testing.assert_array_equal(dist.normal_cdf(POINTS), stats.norm.cdf(POINTS))


def test_a_decision_does_not_import_slow_packages():
    code = (
        "import sys, halfseen as hs; agent = hs.make('adaptive', observed=2, arms=2); "
        "agent.learn(agent.decide([0.1, 0.2]).id, 1.0); agent.health(); "
        "slow = {'scipy.stats', 'scipy.optimize', 'matplotlib', 'pyarrow', 'distributed'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(slow)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
