"""Experiments use common random numbers, and their results do not depend on how the work is divided."""

import numpy as np
import pytest
from experiments.synthetic import assert_same_result, unstable_world

import halfseen as hs
from halfseen.agents.catalogue import CATALOG, AgentSpec, CatalogueEntry, agent_spec, split_spec
from halfseen.choosers.greedy import Greedy
from halfseen.estimators.observed import Observed
from halfseen.experiments import run as run_module
from halfseen.experiments.plan import experiment, world_spec
from halfseen.experiments.play import build_policy
from halfseen.experiments.report import facts_from_worlds
from halfseen.learners.ridge import Ridge

AGENTS = ["oracle-ts", "kf-ts", "emkf-ts", "em-rts-ts", "ts-pco", "bayes", "random"]


def small_run(**options):
    return hs.run(AGENTS, **({"world": ["keyhole", "fog"], "rounds": 450, "seeds": 5} | options))


@pytest.fixture(scope="module")
def result():
    return small_run()


def test_the_result_does_not_depend_on_the_number_of_processes(result):
    assert_same_result(result, small_run(jobs=2))


def test_the_result_does_not_depend_on_the_slices(result, monkeypatch):
    monkeypatch.setattr(run_module, "MOST_SEEDS", 2)
    assert_same_result(result, small_run())


def test_the_result_does_not_depend_on_other_agents_or_seeds(result):
    alone = hs.run("emkf-ts", world="fog", rounds=450, seeds=[3, 1])
    together = result.tracks["fog", "emkf-ts"]
    np.testing.assert_array_equal(alone.tracks["fog", "emkf-ts"].regret, together.regret[[3, 1]])


def test_an_experiment_equals_single_agents(result):
    """A single agent makes the same decisions as the same seed in an experiment."""
    world, seed = hs.worlds.named("keyhole"), 3
    episodes = world.begin([seed])
    rounds = [episodes.advance(n) for n in (200, 200, 50)]
    agent = hs.make("kf-ts", observed=3, arms=6, seed=seed, model=episodes.models[0])
    arms = []
    for part in rounds:
        for t in range(len(part.contexts)):
            decision = agent.decide(part.observations[t, 0])
            agent.learn(decision.id, part.expected[t, 0, decision.index] + part.reward_noise[t, 0])
            arms.append(decision.index)
    np.testing.assert_array_equal(arms, result.tracks["keyhole", "kf-ts"].arm[seed])


def test_regret_is_relative_to_the_best_expected_reward(result):
    track = result.tracks["keyhole", "random"]
    assert track.regret.min() >= 0
    episodes = hs.worlds.named("keyhole").begin([2])
    part = episodes.advance(200)
    got = np.take_along_axis(part.expected[:, 0], track.arm[2, :200, None].astype(int), axis=1)[:, 0]
    np.testing.assert_allclose(track.regret[2, :200], part.expected[:, 0].max(axis=1) - got, atol=1e-9)
    np.testing.assert_allclose(track.reward[2, :200], got + part.reward_noise[:, 0], atol=1e-9)


def test_agents_with_more_information_have_less_regret(result):
    total = {agent: result.total_regret("keyhole", agent).mean() for agent in result.agents}
    assert total["oracle-ts"] < total["kf-ts"] < total["ts-pco"] < total["random"]
    assert (result.tracks["keyhole", "oracle-ts"].error == 0).all()


def test_gram_norm(result):
    """Compare t·‖B_a⁻¹(t)‖ of assumption A3 with Gram matrices computed from the contexts and arms."""
    track, seed = result.tracks["keyhole", "oracle-ts"], 1
    episodes = hs.worlds.named("keyhole").begin([seed])
    xs = np.concatenate([episodes.advance(n).contexts[:, 0] for n in (200, 200, 50)])
    for at, t in enumerate(track.checkpoints):
        norms = []
        for arm in range(6):
            played = xs[:t][track.arm[seed, :t] == arm]
            norms.append(np.linalg.norm(np.linalg.inv(np.eye(8) + played.T @ played), 2))
        assert track.gram[seed, at] == pytest.approx(t * max(norms), rel=1e-6)


def test_summary_and_table(result):
    entry = result.summary["worlds"]["fog"]["agents"]["ts-pco"]
    total = result.total_regret("fog", "ts-pco")
    assert entry["regret_mean"] == pytest.approx(total.mean())
    assert entry["regret_standard_error"] == pytest.approx(total.std(ddof=1) / np.sqrt(5))
    assert entry["curve"]["mean"][-1] == pytest.approx(total.mean())
    assert len(result.table().rows) == 14
    assert "ts-pco" in str(result.table())
    assert result.table().markdown().count("\n") == 15


def test_progress_reaches_the_end():
    calls = []
    hs.run("ts-pco", world="fog", rounds=300, seeds=3, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (900, 900)
    assert calls == sorted(calls)


def test_specs_of_agents_and_worlds():
    assert split_spec("emkf-ts:window=400,initial_transition=orthogonal") == (
        "emkf-ts",
        {"window": 400, "initial_transition": "orthogonal"},
    )
    assert agent_spec("ts-pco:width=0.5") == AgentSpec("ts-pco", {"width": 0.5}, "ts-pco:width=0.5")
    assert world_spec("paper:noise=0.5").process_var == 0.5


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"agents": ["ts-pcoo"]}, "There is no agent 'ts-pcoo'. Did you mean 'ts-pco'?"),
        ({"agents": []}, "agents: expected at least one, got none"),
        ({"agents": ["ts-pco", "ts-pco"]}, "agents: expected no duplicates, got ts-pco, ts-pco"),
        ({"agents": "ts-pco:wide=1"}, "'ts-pco' has no option 'wide'"),
        ({"agents": "ts-pco:width"}, "option: expected name:key=value,key=value, got 'width' in 'ts-pco:width'"),
        ({"world": "orbits"}, "There is no world 'orbits'. Did you mean 'orbit'?"),
        ({"rounds": 0}, "rounds: expected an integer of at least 1, got 0"),
        ({"seeds": 0}, "seeds: expected an integer of at least 1, got 0"),
        ({"seeds": [1, -1]}, "seeds: expected an integer of at least 0, got -1"),
        ({"jobs": 0}, "jobs: expected an integer of at least 1, got 0"),
        ({"agents": [3]}, "agents: expected names of agents, AgentSpecs, classes or triples of components, got 3"),
        ({"world": None}, "world: expected the name of a world, or a world, got None"),
        ({"seeds": 2.0}, "seeds: expected an integer of at least 1, got 2.0"),
        ({"world": unstable_world()}, "world: expected bounded dynamics, got contexts beyond ±1e+100 in round 10"),
    ],
)
def test_invalid_arguments_are_refused(arguments, line):
    options = {"agents": "ts-pco", "world": "fog", "rounds": 10, "seeds": 1} | arguments
    with pytest.raises(hs.HalfseenError) as caught:
        hs.run(options.pop("agents"), **options)
    assert str(caught.value).startswith(line)


def test_estimation_error_is_nan_without_an_estimate():
    """Lagged observations do not estimate the context, and a learned model may use other coordinates."""
    model = hs.LinearGaussianModel(
        transition=0.9 * np.eye(3), process_cov=0.2, observation=[[1.0, 1.0, 0.0]], observation_cov=[[0.1]]
    )
    world = hs.worlds.linear_gaussian(model=model, arm_params=np.eye(3), reward_std=0.0)
    result = hs.run(["oracle-ts", "kf-ts", "ts-pco", "lag-ts:lags=2", "emkf-ts"], world=world, rounds=30, seeds=2)
    error = {agent: result.tracks["own", agent].error for agent in result.agents}
    assert (error["oracle-ts"] == 0).all()
    assert np.isfinite(error["kf-ts"]).all()
    for agent in ("ts-pco", "lag-ts:lags=2", "emkf-ts"):
        assert np.isnan(error[agent]).all()
    lagged = hs.run("lag-ts:lags=1", world="orbit", rounds=20, seeds=1)
    assert np.isnan(lagged.tracks["orbit", "lag-ts:lags=1"].error).all()


class WithFacts(Observed):
    """An estimator with a required option, an option with a default, and two options that are "auto"."""

    def __init__(self, streams, *, latent, observation_cov=0.1, noise_std="auto", horizon=None):
        super().__init__(streams)
        self.heard = {"latent": latent, "observation_cov": observation_cov, "noise_std": noise_std, "horizon": horizon}


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({}, {"latent": 8, "noise_std": "auto", "horizon": "auto"}),
        ({"noise_std": 0.3, "horizon": 70}, {"latent": 8, "noise_std": 0.3, "horizon": 70}),
        ({"latent": "auto"}, {"latent": "auto", "noise_std": "auto", "horizon": "auto"}),
    ],
)
def test_facts_are_given_only_for_options_without_a_value(monkeypatch, options, received):
    entry = CatalogueEntry(
        "curious", WithFacts, Ridge, Greedy, "the observation", "a test", defaults={"horizon": "auto"}
    )
    monkeypatch.setitem(CATALOG._entries, "curious", entry)
    world = hs.worlds.named("foggy-keyhole")
    spec = AgentSpec("curious", options)
    policy = build_policy(spec, world, world.begin([1]), (1,), 50)
    calls = policy.estimator.heard
    np.testing.assert_array_equal(calls.pop("observation_cov"), [0.5 * np.eye(3)])
    assert calls == received
    plan = experiment([spec], world, 50, 1)
    expected = {"latent", "observation_cov"} - set(options)
    assert facts_from_worlds(plan, spec) == sorted(expected)


def test_unknown_names_in_a_result_are_refused(result):
    with pytest.raises(hs.HalfseenError, match=r"There is no world 'foggy'\. Did you mean 'fog'"):
        result.total_regret("foggy", "kf-ts")
    with pytest.raises(hs.HalfseenError, match=r"There is no agent 'kfts'\. Did you mean 'kf-ts'"):
        result.total_regret("fog", "kfts")
    assert "keyhole" in repr(result)
