"""Known differences between the regrets of agents, tested with confidence intervals on paired seeds."""

import itertools

import numpy as np
import pytest

import halfseen as hs
from halfseen.statistics.confidence_intervals import relative_difference
from halfseen.statistics.growth import growth_exponent

AGENTS = ["oracle-ts", "kf-ts", "emkf-ts", "em-rts-ts", "ts-pco", "bayes"]


@pytest.fixture(scope="module")
def orbit():
    return hs.run(AGENTS, world="orbit", rounds=3000, seeds=8)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("oracle-ts", "kf-ts"),  # the true context beats the inferred one
        ("kf-ts", "em-rts-ts"),  # known dynamics beat learnt dynamics
        ("em-rts-ts", "emkf-ts"),  # EM with smoothing learns the hidden dynamics, EM with filtering does not
        ("emkf-ts", "ts-pco"),  # any estimate of slow hidden modes beats none
        ("bayes", "kf-ts"),  # known arms beat learnt arms
    ],
)
def test_ranking_in_orbit(orbit, better, worse):
    difference = relative_difference(orbit.total_regret("orbit", better), orbit.total_regret("orbit", worse))
    assert difference.high < 0


def test_ignoring_hidden_coordinates_costs_linear_regret_in_orbit():
    result = hs.run(["oracle-ts", "ts-pco"], world="orbit", rounds=10_000, seeds=8)
    assert growth_exponent(result.tracks["orbit", "ts-pco"].regret).low > 0.75
    assert growth_exponent(result.tracks["orbit", "oracle-ts"].regret).high < 0.5


def test_regret_is_at_least_linear_because_of_hidden_process_noise(orbit):
    """E‖x − x̂‖² ≥ (d−k)ε for every method, so even `bayes` has regret in every round."""
    track = orbit.tracks["orbit", "bayes"]
    assert (track.error**2).mean() > 10 * 0.01
    growth = growth_exponent(track.regret)
    assert growth.low < 1 < growth.high


def test_hidden_coordinates_matter_little_in_the_world_of_the_paper():
    """The regrets with the true filter and without any filter differ by about a tenth."""
    result = hs.run(["kf-ts", "ts-pco"], world="paper:noise=0.1", rounds=3000, seeds=16)
    world = result.worlds[0]
    difference = relative_difference(result.total_regret(world, "kf-ts"), result.total_regret(world, "ts-pco"))
    assert -0.1 < difference.low < difference.high < 0.2


def test_theoretical_widths_explore_too_much():
    result = hs.run(["kf-ts", "kf-ts:width=theory"], world="keyhole", rounds=2000, seeds=6)
    default, theory = (result.total_regret("keyhole", agent) for agent in result.agents)
    assert relative_difference(theory, default).low > 1.0


def test_predicted_observations_are_calibrated():
    """The innovations are white and have the predicted covariance: NIS ~ χ²(k)."""
    episodes = hs.worlds.named("foggy-keyhole").begin(range(4))
    ys = episodes.advance(2000).observations
    k = ys.shape[2]
    for b, model in enumerate(episodes.models):
        found = model.filter(ys[:, b])
        errors = ys[:, b] - found.predicted_means[:, :k]
        S = found.predicted_covs[:, :k, :k] + model.observation_cov
        nis = np.einsum("ti,tij,tj->t", errors, np.linalg.inv(S), errors)
        assert nis.mean() == pytest.approx(k, abs=4 * np.sqrt(2 * k / len(ys)))
        white = np.corrcoef(errors[1:, 0], errors[:-1, 0])[0, 1]
        assert abs(white) < 4 / np.sqrt(len(ys))


@pytest.mark.slow
def test_claims_can_be_recomputed_from_the_saved_rounds(tmp_path):
    """Every finding about regret in the reproduction follows from rounds.parquet alone."""
    import pyarrow.parquet as pq

    from halfseen.experiments.claims import evaluate_claims
    from halfseen.experiments.reproduce import paper_experiment, save_reproduction
    from halfseen.experiments.run import run_experiment

    result = run_experiment(paper_experiment(rounds=4000, seeds=10))
    claims = evaluate_claims(result)
    save_reproduction(result, claims, tmp_path)
    table = pq.read_table(tmp_path / "rounds.parquet").to_pandas()
    totals = table.groupby(["world", "agent", "seed"], observed=True)["regret"].sum()
    for claim, rival in ((claims[1], "oracle-ts"), (claims[2], "ts-pco")):
        for finding in claim.findings:
            ours, theirs = totals[finding.world, finding.subject], totals[finding.world, rival]
            assert finding.figure.value == pytest.approx((ours - theirs).mean() / theirs.mean(), abs=1e-3)
    for finding in claims[0].findings + claims[3].findings:
        mine = table[(table.world == finding.world) & (table.agent == finding.subject)]
        per_round = mine.groupby("round")["regret"].mean().to_numpy()
        edges = 4000 // np.array([16, 8, 4, 2, 1])
        means = [per_round[a:b].mean() for a, b in itertools.pairwise(edges)]
        slope = np.polyfit(np.log((edges[1:] + edges[:-1]) / 2), np.log(means), 1)[0]
        assert finding.figure.value == pytest.approx(1 + slope, abs=1e-3)
