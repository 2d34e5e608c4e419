"""The answer is yes, no or undecided. Each finding about the data appears in the case made for it and in no other."""

import numpy as np
import pytest
from benchmarks.findings import CASES, draw, true_model

import halfseen as hs

QUIET_FINDINGS = (
    "unchanging sensors", "trending sensors", "heavy-tailed sensors", "heavy-tailed rewards", "starved arms",
)  # fmt: skip


def simple(rounds, share, seed, **options):
    """Examine a white context of two observed features that explains this share of the rewards of two arms."""
    rng = np.random.default_rng(seed)
    ys, arms = rng.normal(size=(rounds, 2)), rng.integers(2, size=rounds)
    slopes = np.array([[0.6, 0.8], [-0.8, 0.6]])
    signal = np.sqrt(share) * (slopes[arms] * ys).sum(axis=1)
    rewards = signal + np.sqrt(1.0 - share) * rng.normal(size=rounds)
    model = hs.LinearGaussianModel(transition=0.01 * np.eye(2), process_cov=0.999, observation_cov=[0.001, 0.001])
    return hs.examine(model=model, observations=ys, arms=arms, rewards=rewards, fitted=False, **options)


def test_without_enough_rewards_nothing_can_be_told():
    ys = np.random.default_rng(0).normal(size=(60, 1))
    model = hs.LinearGaussianModel(transition=[[0.5]], process_cov=1.0, observation_cov=[0.1])
    start = "It cannot be told yet whether what is hidden matters for your decisions: "
    assert hs.examine(model=model, observations=ys).answer == f"{start}there are no rewards."
    few = np.where(np.arange(60) < 12, np.arange(60.0), np.nan)
    found = hs.examine(model=model, observations=ys, arms=np.zeros(60, dtype=int), rewards=few)
    assert found.answer == f"{start}there are 12 rewards, and at least 30 are needed."
    found = hs.examine(model=model, observations=ys, arms=np.zeros(60, dtype=int), rewards=np.ones(60))
    assert found.answer == f"{start}all rewards are equal."


def test_observations_without_prediction_errors_are_examined():
    model = hs.LinearGaussianModel(transition=[[0.5]], process_cov=1.0, observation_cov=[0.1])
    found = hs.examine(model=model, observations=np.zeros((100, 1)))
    assert "worst stretch of surprises" not in [finding.name for finding in found.findings]


@pytest.mark.parametrize("rounds", [40, 60, 100])
def test_few_rewards_never_lead_to_the_advice_to_ignore_the_context(rounds):
    """The context explains a fifth of the rewards, which so few rewards rarely show."""
    undecided = 0
    for seed in range(8):
        result = simple(rounds, 0.2, seed)
        explained = result.finding("rewards explained")
        assert "choose by the mean" not in str(result)
        assert not result.answer.startswith("No: neither")
        undecided += "cannot be told yet" in explained.sentence
        assert ("cannot be told yet whether the context" in result.answer) is ("cannot be" in explained.sentence)
        assert explained.verdict is hs.Verdict.FINE
    assert undecided >= 2


def test_many_rewards_that_no_context_explains_lead_to_this_advice():
    result = simple(2000, 0.0, 1)
    assert result.answer.startswith("No: neither what you see nor what can be recovered from it predicts rewards.")
    finding = result.finding("rewards explained")
    assert finding.verdict is hs.Verdict.LOOK
    assert finding.sentence.startswith("no description of the context predicts rewards (it explains at most ")
    assert finding.sentence.endswith("choose by the mean rewards of the arms")


def test_the_number_of_rewards_needed_is_stated():
    result = simple(60, 0.0, 1)
    at_most = result.measured.explained.context_at_most
    assert 0.05 < at_most < 0.5
    assert result.answer.startswith("It cannot be told yet whether the context predicts rewards: 60 rewards")
    needed = int(result.answer.split("About ")[1].split(" rewards")[0].replace(",", ""))
    assert 60 * at_most / 0.05 <= needed <= 2 * 60 * at_most / 0.05


def test_the_percentages_of_the_answer_are_those_of_the_findings():
    data = draw(3)
    rewards = data.rewards[np.arange(len(data.arms)), data.arms]
    result = hs.examine(
        model=data.model,
        observations=data.observations,
        arms=data.arms,
        rewards=rewards,
        hidden=np.column_stack([data.contexts[:, 3], np.random.default_rng(0).normal(size=len(rewards))]),
        hidden_names=["load", "noise"],
        fitted=False,
    )
    shares = result.measured.explained.shares
    load = next(one for one in result.measured.sensor_values if one.name == "load")
    assert result.answer == (
        f"Yes: filtering raises the explained share of rewards from {100 * shares['seen']:.0f} % to "
        f"{100 * shares['filtered context']:.0f} %. Seeing load directly would add {100 * load.share.value:.1f} %."
    )


def test_a_model_that_is_too_small_gives_no_negative_answer():
    """The observation is a sum of two processes, so a model of one dimension has autocorrelated errors."""
    rng, n = np.random.default_rng(3), 2000
    x = np.zeros((n, 2))
    for t in range(1, n):
        x[t] = [0.98, -0.9] * x[t - 1] + rng.normal(size=2) * [0.2, 0.4]
    ys, arms = x.sum(axis=1, keepdims=True), rng.integers(2, size=n)
    model = hs.LinearGaussianModel(transition=[[0.0]], process_cov=float(ys.var()), observation_cov=[1e-4])
    rewards = np.where(arms == 0, 1.0, -1.0) * ys[:, 0] + rng.normal(size=n)
    options = {"arms": arms, "rewards": rewards, "fitted": False}
    result = hs.examine(model=model, observations=ys, **options)
    assert result.answer.startswith("It cannot be told with this model whether what is hidden matters")
    # If the complete context is known not to explain more, the model does not matter.
    assert hs.examine(model=model, observations=ys, contexts=x, **options).answer.startswith("No: recovering")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_findings_about_data_are_made_in_their_case_only(case):
    expected = {name for name in case.expected[0].findings if name in QUIET_FINDINGS}
    findings = true_model(case.draw(1)).findings
    assert {name for name in QUIET_FINDINGS if name in findings and findings[name].verdict != "fine"} == expected
    kind = findings["kind of rewards"].shown.split(",")[0]
    assert kind == ("binary" if case.name == "binary rewards" else "continuous")


def test_terms_are_explained_where_they_appear():
    result = simple(200, 0.2, 1)
    text = str(result)
    assert text.startswith(result.answer[:40])
    assert "\n  spectral radius: factor per round" in text
    assert "nats:" not in text  # no dimensions were compared
    assert max(map(len, text.splitlines())) <= 80
