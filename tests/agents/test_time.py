"""Steps between rounds, observations without a decision, previews and forecasts."""

import numpy as np
import pytest
from tests.settings import make_small

import halfseen as hs
from halfseen.components import LONGEST_GAP

MODEL = hs.LinearGaussianModel(
    transition=[[0.8, 0.5], [-0.5, 0.8]], process_cov=0.1, observation_cov=[0.2]
)  # the radius is 0.94


def agent_of(name, **options):
    if name == "kf-ts":
        options["model"] = MODEL
    elif name.startswith("adaptive"):
        options["refit"] = "manual"  # the rounds of a gap do not make a refit due, missing observations do
    elif name.startswith("em"):
        options |= {"latent": 2, "observation_cov": 0.2, "window": 20}
    return hs.make(name, observed=1, arms=3, seed=1, **options)


FILTERS = ["kf-ts", "emkf-ts", "em-rts-ts", "adaptive"]
TIMELESS = ["ts-pco", "lag-ts", "random"]


def play(agent, rounds, *, elapsed=lambda t: 1, seed=0):
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        decision = agent.decide(rng.normal(size=1), elapsed=elapsed(t))
        agent.learn(decision, 0.5 * decision.index)
    return agent


def same_state(one, other):
    one, other = one.state(), other.state()
    assert one.keys() == other.keys()
    return all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in one)


@pytest.mark.parametrize("name", FILTERS)
def test_a_gap_equals_rounds_in_which_nothing_is_seen(name):
    gaps, missing, rng = agent_of(name), agent_of(name), np.random.default_rng(2)
    for t in range(60):
        y, steps = rng.normal(size=1), 1 + (t % 5 == 3) * (t % 7)
        for _ in range(steps - 1):
            missing.observe([None])
        first, second = gaps.decide(y, elapsed=steps), missing.decide(y)
        np.testing.assert_allclose(first.context, second.context, rtol=1e-12, atol=1e-12)
        assert first.id == second.id == t + 1
        gaps.learn(first, float(first.index))
        missing.learn(second, float(first.index))
        if name == "adaptive" and t in (25, 50):
            gaps.refit()
            missing.refit()


@pytest.mark.parametrize("name", FILTERS)
def test_one_step_is_the_default(name):
    assert same_state(play(agent_of(name), 40), play(agent_of(name), 40, elapsed=lambda t: 1.0))


@pytest.mark.parametrize("name", [*FILTERS, *TIMELESS, "mts", "hmm-ts"])
def test_an_observation_takes_no_id(name):
    agent = make_small(name)
    y = np.zeros(agent.policy.streams.observed)
    agent.observe(y)
    agent.observe(y, elapsed=3)
    assert agent.rounds == 0
    assert agent.pending == ()
    decision = agent.decide(y)
    assert decision.id == 1
    assert agent.pending == (1,)
    agent.observe(y)
    agent.learn(decision, 1.0)
    assert agent.decide(y).id == 2


@pytest.mark.parametrize("name", FILTERS)
def test_observations_inform_later_decisions(name):
    seen, unseen = agent_of(name), agent_of(name)
    for agent in (seen, unseen):
        play(agent, 60)
        if name == "adaptive":  # before the first identification the context is the observation itself
            agent.refit()
    seen.observe([3.0])
    unseen.observe([None])
    assert np.abs(seen.decide([None]).context - unseen.decide([None]).context).max() > 1e-3


@pytest.mark.parametrize("name", TIMELESS)
def test_time_means_nothing_to_agents_without_a_filter(name):
    steady, uneven = play(agent_of(name), 20), play(agent_of(name), 20, elapsed=lambda t: t % 4)
    assert same_state(steady, uneven)
    assert "time between rounds" in uneven.health().facts


@pytest.mark.parametrize("name", FILTERS)
def test_a_long_gap_forgets_the_context_and_costs_little(name):
    agent = play(agent_of(name), 60)
    before = agent.policy.extra_rounds[0]
    agent.observe([None], elapsed=10**6)
    assert agent.policy.extra_rounds[0] - before <= 22  # not 10⁶ rounds in the state
    if name != "adaptive":
        np.testing.assert_allclose(agent.preview([None]).context, 0.0, atol=1e-6)
    play(agent, 60)


def test_a_gap_beyond_the_cap_begins_another_series():
    agent = play(agent_of("adaptive"), 60)
    agent.decide([0.1], elapsed=LONGEST_GAP + 1)
    history = agent.policy.estimator.history
    assert np.count_nonzero(history.gaps[0] == 1) == LONGEST_GAP
    agent.decide([0.1], elapsed=LONGEST_GAP + 2)
    assert np.count_nonzero(history.gaps[0] == 2) == 1
    play(agent, 30)
    agent.refit()
    assert np.isfinite(agent.decide([0.3]).context).all()


@pytest.mark.parametrize("name", FILTERS)
def test_a_second_look_does_not_move_the_context(name):
    agent = play(agent_of(name), 40)
    first = agent.decide([0.4])
    again = agent.decide([None], elapsed=0)
    np.testing.assert_allclose(again.context, first.context, rtol=1e-12, atol=1e-12)
    assert again.id == first.id + 1


@pytest.mark.parametrize("name", ["hmm-ts", "mts"])
def test_to_agents_of_states_a_second_look_is_another_round(name):
    agent, other = make_small(name), make_small(name)
    y = np.linspace(-1.0, 1.0, agent.policy.streams.observed)
    for t in range(12):
        for one, elapsed in ((agent, 0 if t % 3 == 2 else 1), (other, 1)):
            one.learn(one.decide(y * t, elapsed=elapsed), 1.0)
    assert same_state(agent, other)


@pytest.mark.parametrize("name", ["ts-pco", "random", "meb"])
def test_observations_do_not_change_agents_that_need_only_the_last_one(name):
    agent, other = make_small(name), make_small(name)
    y = np.linspace(-1.0, 1.0, agent.policy.streams.observed)
    for t in range(20):
        agent.observe(y - t)
        one, two = agent.decide(y * t), other.decide(y * t)
        assert one.arm == two.arm
        np.testing.assert_array_equal(one.propensities, two.propensities)
        agent.learn(one, float(t % 3))
        other.learn(two, float(t % 3))


def learn_rotation(rounds, *, looks=0, elapsed=1, louder_from=10**9, **options):
    """Return `adaptive` after decisions on two observed coordinates, with `looks` more looks at every moment."""
    agent, rng = hs.make("adaptive", observed=2, arms=2, seed=3, **options), np.random.default_rng(4)
    turn, x, surprise = 0.95 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]]), np.zeros(2), []
    for t in range(rounds):
        for _ in range(elapsed):
            x = turn @ x + rng.normal(size=2) * (8.0 if t >= louder_from else 1.0)
        decision = agent.decide(x + 0.01 * rng.normal(size=2), elapsed=elapsed)
        agent.learn(decision, x[decision.index] + 0.1 * rng.normal())
        for _ in range(looks):
            agent.observe(x + 0.01 * rng.normal(size=2), elapsed=0)
        surprise.append(agent.policy.estimator.surprise[0])
    return agent, surprise


def test_a_second_look_is_not_taken_for_a_change():
    agent, _ = learn_rotation(400, looks=1)
    assert agent.health().facts["changes of the dynamics noticed"] == 0


def test_a_second_look_at_the_raw_observation_replaces_what_is_seen_again():
    agent = hs.make("adaptive", observed=2, arms=2, seed=1)
    agent.decide([1.0, 2.0])
    second = agent.decide([5.0, None], elapsed=0).context
    np.testing.assert_allclose(second[1:3], [5.0, 2.0], atol=1e-4)


@pytest.mark.parametrize("elapsed", [1, 6])
def test_a_change_is_noticed_with_gaps_too(elapsed):
    agent, _ = learn_rotation(560, elapsed=elapsed, louder_from=400)
    assert agent.policy.estimator.detected_changes[0] >= 1


def test_rounds_of_gaps_do_not_delay_identification():
    agent, _ = learn_rotation(300, elapsed=20, history=300)
    every, _ = learn_rotation(300, history=300)
    assert agent.health().facts["identifications"] >= every.health().facts["identifications"]


def test_a_forecast_begins_with_the_last_reward():
    agent, rng = hs.make("adaptive", observed=1, arms=2, seed=1), np.random.default_rng(2)
    x, turn = np.zeros(2), 0.99 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    for _ in range(300):
        x = turn @ x + 0.3 * rng.normal(size=2)
        decision = agent.decide(x[:1] + 0.3 * rng.normal())
        agent.learn(decision, (1.0 - 2.0 * decision.index) * x[1] + 0.1 * rng.normal())
    assert not agent.policy.estimator.uses_raw_observation[0]
    unrewarded = agent.policy.estimator.belief_mean[0, :2].copy()
    nothing = agent.preview([None]).context
    np.testing.assert_allclose(agent.forecast(1).context_means[0], nothing, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(agent.policy.estimator.belief_mean[0, :2], unrewarded)
    D = agent.policy.estimator.parameters(0).D
    assert np.abs(D @ unrewarded + agent.policy.estimator.shift[0, :2] - nothing[1:3]).max() > 1e-3


def test_a_forecast_that_overflows_is_refused():
    model = hs.LinearGaussianModel(transition=[[3.0]], process_cov=[[1.0]], observation_cov=[0.5])
    agent = hs.make("kf-ts", observed=1, arms=2, model=model, seed=1)
    agent.forecast(100)
    with pytest.raises(hs.HalfseenError, match=r"^'kf-ts' cannot forecast 1000 rounds: its model is unstable"):
        agent.forecast(1000)


def test_a_forecast_shows_contexts_with_the_observed_features_first():
    model = hs.LinearGaussianModel(
        transition=[[0.9, 0.1], [-0.2, 0.8]], process_cov=0.1, observation_cov=[0.1], observation=[[1.0, 2.0]]
    )
    agent = play(hs.make("kf-ts", observed=1, arms=2, model=model, seed=1), 20)
    ahead = agent.forecast(3)
    assert ahead.context_names == ("feature 0", "hidden 1")
    means, lower, upper = ahead.context_in_units()
    observation = np.array([1.0, 2.0])
    np.testing.assert_allclose(means[:, 0], ahead.context_means @ observation, rtol=1e-9)
    std = np.sqrt(np.einsum("p,hpq,q->h", observation, ahead.context_covs, observation))
    np.testing.assert_allclose((upper - lower)[:, 0], 2 * 1.6448536 * std, rtol=1e-6)


@pytest.mark.parametrize("elapsed", [np.array([1, 2]), True, -1, 1.5, float("nan"), "2", None])
def test_steps_that_are_not_one_whole_number_are_refused(elapsed):
    agent = agent_of("kf-ts")
    for act in (agent.decide, agent.preview, agent.observe, MODEL.tracker().step):
        with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
            act([0.1], elapsed=elapsed)
    assert agent.rounds == 0


@pytest.mark.parametrize("elapsed", [-1, 1.5, float("nan"), float("inf"), "2", None, 2e12, [1]])
@pytest.mark.parametrize("method", ["decide", "observe", "preview"])
@pytest.mark.parametrize("name", ["kf-ts", "ts-pco"])
def test_bad_steps_are_refused_and_change_nothing(name, method, elapsed):
    agent, other = agent_of(name), agent_of(name)
    with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
        getattr(agent, method)([0.1], elapsed=elapsed)
    assert same_state(agent, other)


@pytest.mark.parametrize("name", ["kf-ts", "ts-pco", "adaptive"])
def test_a_bad_observation_changes_nothing(name):
    agent, other = play(agent_of(name), 10), play(agent_of(name), 10)
    for y in ([1e200], [1.0, 2.0], ["x"]):
        with pytest.raises(hs.HalfseenError, match=r"^observation"):
            agent.observe(y, elapsed=3)
    assert same_state(agent, other)


# ---------------------------------------------------------------------- state


@pytest.mark.parametrize("name", FILTERS)
def test_saved_agents_continue_with_observations_and_gaps(name, tmp_path):
    agent = play(agent_of(name), 30, elapsed=lambda t: 1 + t % 3)
    late = agent.decide([0.2])
    agent.observe([0.1], elapsed=150)
    agent.save(tmp_path / "agent.hs")
    loaded = hs.load(tmp_path / "agent.hs")
    for one in (agent, loaded):
        one.learn(late.id, 1.0)
    assert same_state(play(agent, 20), play(loaded, 20))


@pytest.mark.parametrize("name", FILTERS)
def test_a_fold_repeats_observations_and_gaps(name):
    rng = np.random.default_rng(4)
    agent, ys, arms, rewards, elapsed = agent_of(name), rng.normal(size=(80, 1)), [], [], []
    for t, y in enumerate(ys):
        elapsed.append([1, 1, 3, 0 if t % 8 else 130][t % 4])
        if t % 3 == 1:
            agent.observe(y, elapsed=elapsed[-1])
            arms.append(None)
            rewards.append(np.nan)
        else:
            decision = agent.decide(y, elapsed=elapsed[-1])
            arms.append(decision.arm)
            rewards.append(float(rng.normal()))
            agent.learn(decision, rewards[-1])
    assert same_state(agent, agent_of(name).fold(ys, arms, rewards, elapsed=elapsed))


def test_a_fold_refuses_a_reward_without_a_decision():
    agent = agent_of("ts-pco")
    with pytest.raises(hs.HalfseenError, match=r"^rewards: expected NaN in rounds without a decision"):
        agent.fold([[0.1], [0.2]], [0, None], [1.0, 1.0])
    assert agent.rounds == 0


@pytest.mark.parametrize("name", FILTERS)
def test_a_fleet_decides_as_its_agents(name):
    options = {"kf-ts": {"model": MODEL}, "adaptive": {"refit": "manual"}}.get(
        name, {"latent": 2, "observation_cov": 0.2, "window": 20}
    )
    fleet, rng = hs.Fleet(name, observed=1, arms=3, **options), np.random.default_rng(8)
    fleet.add(3, seeds=[5, 6, 7])
    agents = [hs.make(name, observed=1, arms=3, seed=seed, **options) for seed in (5, 6, 7)]
    for t in range(40):
        ys = rng.normal(size=(3, 1))
        elapsed = rng.choice([0, 1, 1, 4, 120], size=3) if t % 3 == 0 else np.ones(3, dtype=int)
        fleet.observe(ys[:2] + 1.0, streams=[0, 1])
        decisions = fleet.decide(ys, elapsed=elapsed)
        for i, agent in enumerate(agents):
            if i < 2:
                agent.observe(ys[i] + 1.0)
            decision = agent.decide(ys[i], elapsed=int(elapsed[i]))
            np.testing.assert_array_equal(decisions.contexts[i], decision.context)
            assert decisions.arms[i] == decision.arm
            agent.learn(decision, 0.5)
        fleet.learn(decisions, np.full(3, 0.5))
    for i, agent in enumerate(agents):
        assert same_state(fleet.agent(i), agent)
    assert same_state(fleet.agent(fleet.adopt(agents[0])), agents[0])
    with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
        fleet.observe(ys, streams=[0, 1, 2], elapsed=[1, 2, -3])


# ---------------------------------------------------------------------- previews and forecasts


@pytest.mark.parametrize("name", [*FILTERS, *TIMELESS, "hmm-ts", "mts", "meb"])
def test_a_preview_is_the_next_decision_and_changes_nothing(name):
    agent, other = make_small(name), make_small(name)
    y = np.linspace(-1.0, 1.0, agent.policy.streams.observed)
    for t in range(12):
        for one in (agent, other):
            one.learn(one.decide(y * t), 1.0)
        preview = agent.preview(y, elapsed=2)
    assert same_state(agent, other)
    decision = agent.decide(y, elapsed=2)
    assert (preview.arm, preview.id) == (decision.arm, decision.id)
    np.testing.assert_array_equal(preview.propensities, decision.propensities)
    np.testing.assert_array_equal(preview.expected, decision.expected)
    with pytest.raises(hs.HalfseenError, match="a preview"):
        agent.learn(preview, 1.0)


def test_a_preview_of_an_agent_with_a_budget_spends_nothing():
    agent = hs.make("ts-pco", observed=1, arms=2, seed=1, budget=(10.0, 100))
    agent.preview([0.1], costs=[1.0, 2.0])
    assert agent.policy.budgets.spent[0] == 0.0


def test_a_forecast_moves_the_belief_of_the_filter():
    agent = play(agent_of("kf-ts"), 50)
    ahead = agent.forecast(4)
    D, Q = MODEL.transition, MODEL.process_cov
    mean, cov = agent.preview([None], elapsed=1).context, None
    np.testing.assert_allclose(ahead.context_means[0], mean, rtol=1e-12)
    for j in range(1, 4):
        np.testing.assert_allclose(ahead.context_means[j], D @ ahead.context_means[j - 1], rtol=1e-12)
        cov = D @ ahead.context_covs[j - 1] @ D.T + Q
        np.testing.assert_allclose(ahead.context_covs[j], cov, rtol=1e-12)
    np.testing.assert_allclose(ahead.best_arm_probability.sum(axis=1), 1.0, rtol=1e-9)


def test_a_forecast_agrees_with_simulation():
    agent = play(agent_of("kf-ts"), 200)
    ahead, rng, draws = agent.forecast(3), np.random.default_rng(1), 200_000
    mean, cov = agent.policy.learner.mean[0], np.empty((3, 2, 2))
    units = np.eye(2)
    score = lambda c: agent.policy.learner.score(np.zeros(len(c), dtype=np.int64), np.ascontiguousarray(c))  # noqa: E731
    diagonal = score(units)[1]
    mixed = score(np.array([[1.0, 1.0]]))[1][0]
    for a in range(3):
        cross = 0.5 * (mixed[a] - diagonal[0, a] - diagonal[1, a])
        cov[a] = [[diagonal[0, a], cross], [cross, diagonal[1, a]]]
    contexts = rng.multivariate_normal(ahead.context_means[2], ahead.context_covs[2], size=draws)
    arms = np.stack([rng.multivariate_normal(mean[a], cov[a], size=draws) for a in range(3)], axis=1)
    values = (arms * contexts[:, None]).sum(axis=2)
    np.testing.assert_allclose(ahead.expected[2], values.mean(axis=0), atol=4 * values.std() / np.sqrt(draws))
    np.testing.assert_allclose(ahead.std[2], values.std(axis=0), rtol=0.02)
    best = np.bincount(values.argmax(axis=1), minlength=3) / draws
    np.testing.assert_allclose(ahead.best_arm_probability[2], best, atol=0.05)  # 128 contexts


def test_a_forecast_of_clicks_is_a_probability():
    agent = hs.make("adaptive", observed=1, arms=2, seed=1, reward_family="binary", refit="manual")
    rng = np.random.default_rng(2)
    for t in range(60):
        decision = agent.decide([np.sin(0.3 * t)])
        agent.learn(decision, float(rng.random() < 0.3 + 0.4 * decision.index))
    agent.refit()
    ahead = agent.forecast(5)
    lower, upper = ahead.interval(0.9)
    assert (lower > 0.0).all()
    assert (upper < 1.0).all()
    assert ((lower < ahead.expected) & (ahead.expected < upper)).all()
    assert (ahead.expected[:, 1] > ahead.expected[:, 0]).all()


def test_a_retired_arm_is_never_the_best():
    agent = play(agent_of("kf-ts"), 30)
    agent.retire_arm(2)
    assert (agent.forecast(2).best_arm_probability[:, 2] == 0.0).all()


def test_a_forecast_changes_nothing():
    agent, other = play(agent_of("adaptive"), 60), play(agent_of("adaptive"), 60)
    agent.forecast(20).interval()
    assert same_state(agent, other)


@pytest.mark.parametrize("horizon", [0, -1, 1.5, "3", None, 1001, float("nan")])
def test_a_bad_horizon_is_refused(horizon):
    with pytest.raises(hs.HalfseenError, match=r"^horizon: expected"):
        agent_of("kf-ts").forecast(horizon)


def test_agents_without_a_model_cannot_forecast():
    with pytest.raises(hs.HalfseenError, match="'ts-pco' has no linear-Gaussian model of the context"):
        agent_of("ts-pco").forecast(3)


def test_a_forecast_is_a_table_and_a_picture(tmp_path):
    ahead = play(agent_of("kf-ts"), 30).forecast(6)
    frame = ahead.to_frame("pandas")
    assert list(frame.columns) == [
        "rounds_ahead", "arm", "expected", "std", "lower", "upper", "best_arm_probability"
    ]  # fmt: skip
    assert len(frame) == 18
    assert frame["rounds_ahead"].max() == 6
    ahead.plot(tmp_path / "ahead.png")
    assert (tmp_path / "ahead.png").stat().st_size > 5_000


HORIZONS = (1, 5, 20)


@pytest.mark.parametrize("name", ["bayes", "kf-ts"])
def test_intervals_cover_what_they_claim(name):
    """100 streams with 8 forecasts each of 6 arms and 8 coordinates. The bounds are those that the project promises.

    The learner of `kf-ts` takes the filtered context for the true one, so its arms are too certain (87 % at one round
    ahead). Only its contexts come from a model that is right.
    """
    world, streams, every, rounds = hs.worlds.named("keyhole"), 100, 40, 341
    episodes = world.begin(range(1000, 1000 + streams))
    facts = episodes.facts()
    played = episodes.advance(rounds)
    options = {"model": facts["model"]}
    if name == "bayes":
        options["arm_params"] = facts["arm_params"]
    hits = {horizon: [] for horizon in HORIZONS}
    context_hits = {horizon: [] for horizon in HORIZONS}
    for stream in range(streams):
        own = {key: value[stream] for key, value in options.items()}
        agent = hs.make(name, observed=world.observed, arms=world.arms, seed=stream, **own)
        for t in range(rounds - max(HORIZONS)):
            decision = agent.decide(played.observations[t, stream])
            agent.learn(decision, float(played.reward_of(t, np.array([stream]), np.array([decision.index]))[0]))
            if t % every == every - 1:
                ahead = agent.forecast(max(HORIZONS))
                lower, upper = ahead.interval(0.9)
                below, above = ahead.context_interval(0.9)
                for horizon in HORIZONS:
                    truth, context = played.expected[t + horizon, stream], played.contexts[t + horizon, stream]
                    hits[horizon].append((lower[horizon - 1] <= truth) & (truth <= upper[horizon - 1]))
                    context_hits[horizon].append((below[horizon - 1] <= context) & (context <= above[horizon - 1]))
    for horizon in HORIZONS:
        if name == "bayes":
            assert 0.87 <= np.mean(hits[horizon]) <= 0.93, (horizon, np.mean(hits[horizon]))
        assert 0.87 <= np.mean(context_hits[horizon]) <= 0.93, (horizon, np.mean(context_hits[horizon]))
