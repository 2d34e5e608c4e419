"""`hs.examine` and the findings of `health()`: wrong models, sensors, files and invalid arguments."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from settings import make_small, play_rounds, simulate_rounds

import halfseen as hs
from halfseen.diagnostics.explained_rewards import ExplainedRewards, Improvement
from halfseen.diagnostics.findings import reward_findings
from halfseen.diagnostics.health import Finding, Health, Verdict
from halfseen.errors import HalfseenError
from halfseen.experiments.examine import examine_world
from halfseen.reports.tables import percent

LATENT, OBSERVED, ROUNDS = 4, 3, 1200


def truth(radius=0.97, seed=0):
    """Return a model with three sensors. The last sensor observes a coordinate that does not affect rewards."""
    D = np.zeros((LATENT, LATENT))
    turn = 0.3
    D[np.ix_([0, 3], [0, 3])] = radius * np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    D[1, 1], D[2, 2] = 0.9, 0.8
    return hs.LinearGaussianModel(transition=D, process_cov=0.05, observation_cov=[0.02, 0.02, 0.02])


@pytest.fixture(scope="module")
def record():
    rng, model = np.random.default_rng(8), truth()
    x, contexts = np.zeros(LATENT), []
    for _ in range(ROUNDS):
        x = model.transition @ x + np.sqrt(0.05) * rng.normal(size=LATENT)
        contexts.append(x)
    contexts = np.array(contexts)
    ys = contexts[:, :OBSERVED] + np.sqrt(0.02) * rng.normal(size=(ROUNDS, OBSERVED))
    slopes = np.array([[1.0, 0.3, 0.0, 1.2], [-1.0, 0.2, 0.0, -0.8], [0.5, -0.4, 0.0, -1.0]])
    rewards = contexts @ slopes.T + 0.2 * rng.normal(size=(ROUNDS, 3))
    return {"observations": ys, "rewards": rewards, "contexts": contexts}


def played(record, seed=1):
    arms = np.random.default_rng(seed).integers(3, size=ROUNDS)
    return record | {"arms": arms, "rewards": record["rewards"][np.arange(ROUNDS), arms]}


def verdicts(examination):
    return {finding.name: finding.verdict for finding in examination.findings}


def test_a_correct_model_is_fine(record):
    result = hs.examine(model=truth(), fitted=False, **played(record))
    assert set(verdicts(result).values()) == {hs.Verdict.FINE}, result
    assert result.ok
    assert result.hidden_pays == "much"
    assert result.filtering_pays == "little"
    shares = result.measured.explained.shares
    assert shares["seen"] < shares["filtered context"] < shares["true context"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"transition": 0.5 * truth().transition}, "memory of surprises"),
        ({"process_cov": 0.005, "observation_cov": [0.002] * 3}, "size of surprises"),
        ({"process_cov": 0.5, "observation_cov": [0.2] * 3}, "size of surprises"),
        ({"transition": 1.1 * truth().transition}, "spectral radius"),
    ],
)
def test_wrong_models_are_bad(record, changes, name):
    result = hs.examine(model=replace(truth(), **changes), fitted=False, **played(record))
    assert verdicts(result)[name] is hs.Verdict.BAD, result
    assert not result.ok


def test_a_starved_arm_is_reported(record):
    few = played(record)
    few["arms"] = np.where(few["arms"] == 2, 1, few["arms"])
    few["arms"][[3, 700]] = 2
    few["rewards"] = record["rewards"][np.arange(ROUNDS), few["arms"]]
    result = hs.examine(model=truth(), fitted=False, arm_names=["low", "middle", "high"], **few)
    finding = result.finding("starved arms")
    assert finding.verdict is hs.Verdict.LOOK
    assert "high (2)" in finding.sentence


def test_values_of_sensors(record):
    result = hs.examine(
        model=truth(),
        fitted=False,
        sensors=["all", "some", "none"],
        hidden=np.column_stack([record["contexts"][:, 3], np.random.default_rng(0).normal(size=ROUNDS)]),
        hidden_names=["the hidden one", "noise"],
        **record,
    )
    sensors = {sensor.name: sensor for sensor in result.measured.sensor_values}
    assert sensors["all"].share.value > 0.5
    assert 0.01 < sensors["some"].share.value < 0.2
    assert abs(sensors["none"].share.value) < 0.002
    assert sensors["the hidden one"].share.value > 0.02
    assert sensors["the hidden one"].hidden
    assert abs(sensors["noise"].share.value) < 0.002
    assert "could be removed" in result.finding("worth of none").sentence
    assert "the greedy choice would lose" in result.finding("worth of all").sentence
    # The sensors have the same order if their worth is measured in the reward of the greedy choice.
    assert sensors["all"].greedy_reward > 10 * abs(sensors["none"].greedy_reward)
    assert sensors["all"].greedy_reward > sensors["some"].greedy_reward > 0


def test_values_in_reward_need_the_rewards_of_all_arms(record):
    assert all(one.greedy_reward is None for one in hs.examine(model=truth(), **played(record)).measured.sensor_values)


def test_a_single_sensor_can_be_examined(record):
    D = truth().transition[np.ix_([0, 3], [0, 3])]
    model = hs.LinearGaussianModel(transition=D, process_cov=0.05, observation_cov=[0.02])
    data = played(record)
    result = hs.examine(model=model, fitted=False, **(data | {"observations": data["observations"][:, :1]}))
    (sensor,) = result.measured.sensor_values
    assert sensor.share.value == pytest.approx(result.measured.explained.shares["filtered context"], abs=1e-9)


@pytest.mark.filterwarnings("ignore:The observation noise:halfseen.errors.HalfseenWarning")
def test_dimensions_are_compared(record):
    ys = record["observations"]
    small = hs.fit(ys, latent=3, max_iterations=40).model
    result = hs.examine(model=small, alternatives=[truth()], **played(record))
    assert result.measured.scores[4] > result.measured.scores[3] + 30
    assert result.finding("dimension").verdict is hs.Verdict.LOOK
    assert hs.examine(model=truth(), alternatives=[small], **played(record)).finding("dimension").value == 4


def test_missing_entries_and_rewards(record):
    rng, data = np.random.default_rng(2), played(record)
    ys, rewards = data["observations"].copy(), data["rewards"].copy()
    ys[rng.random(ys.shape) < 0.2] = np.nan
    ys[5] = np.nan
    rewards[rng.random(ROUNDS) < 0.3] = np.nan
    result = hs.examine(model=truth(), fitted=False, **(data | {"observations": ys, "rewards": rewards}))
    assert result.ok, result
    assert result.hidden_pays == "much"


def test_without_rewards_only_the_model_is_examined(record):
    result = hs.examine(model=truth(), observations=record["observations"])
    assert result.hidden_pays is None
    assert result.measured.sensor_values is None
    assert "size of surprises" in verdicts(result)
    assert "rewards explained" not in verdicts(result)


def test_few_rounds_give_few_findings(record):
    data = {name: value[:5] for name, value in played(record).items()}
    result = hs.examine(model=truth(), **data)
    assert result.ok
    assert {"spectral radius", "observability of the hidden block", "unchanging sensors"} == set(verdicts(result))
    assert result.answer.endswith("there are 5 rewards, and at least 30 are needed.")


def test_equal_rewards_and_constant_sensors(record):
    ys = np.column_stack([np.full(200, 3.0), record["observations"][:200, 0]])
    model = hs.LinearGaussianModel(transition=0.9 * np.eye(2), process_cov=0.1, observation_cov=[0.1, 0.1])
    result = hs.examine(model=model, observations=ys, arms=np.zeros(200, dtype=int), rewards=np.full(200, 2.0))
    assert result.hidden_pays is None
    still = np.zeros((200, 2))
    result = hs.examine(model=model, observations=still, arms=np.zeros(200, dtype=int), rewards=np.arange(200.0))
    assert result.finding("size of surprises") is None  # constant observations give no finding
    assert "entry 0 never changes; entry 1 never changes" in result.finding("unchanging sensors").sentence


def test_saved_files(record, tmp_path):
    result = hs.examine(model=truth(), alternatives=[truth(0.9)], title="A <title>", **record)
    written = result.save(tmp_path / "out")
    assert sorted(path.name for path in written) == ["health.html", "health.json", "health.png", "health.svg"]
    page = (tmp_path / "out/health.html").read_text()
    assert "A &lt;title&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    for finding in result.findings:
        assert finding.name in page
    assert result.answer in page
    assert "Terms" in page
    summary = json.loads((tmp_path / "out/health.json").read_text())
    assert summary["answer"] == result.answer
    assert summary["answer"].startswith("Yes: filtering raises")
    assert summary["hidden_pays"] == "much"
    assert [entry["name"] for entry in summary["findings"]] == [finding.name for finding in result.findings]
    result.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert [row["finding"] for row in result.table().rows] == [finding.name for finding in result.findings]
    text = " ".join(str(result).split())
    assert text.startswith(result.answer)
    assert all(f"- {finding}" in text for finding in result.findings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "agent: expected an agent or a model, got neither"),
        ({"model": 3}, "model: expected a LinearGaussianModel, got int"),
        ({"observations": None}, "observations: expected a table of 3 columns, .*, got nothing"),
        ({"observations": np.zeros((10, 2))}, r"observations: expected a table of 3 columns, got shape \(10, 2\)"),
        ({"observations": np.zeros((0, 3)), "rewards": None}, "observations: expected at least one row, got none"),
        ({"rewards": np.zeros(7)}, r"rewards: expected shape \(1200,\), .*, got shape \(7,\)"),
        ({"rewards": np.full(ROUNDS, np.inf)}, "rewards: expected numbers within ±1e.100 or NaN, got a larger number"),
        ({"arms": None}, "arms: expected the arm played in each round, .*, got nothing"),
        (
            {"arms": np.full(ROUNDS, -1)},
            r"arms: expected 1200 indices of arms, got int64 values of shape \(1200,\)",
        ),
        ({"arms": np.full(ROUNDS, 0.5)}, r"arms: expected 1200 indices of arms, got float64 values of shape \(1200,\)"),
        ({"contexts": np.zeros((5, 4))}, "contexts: expected 1200 rows, one per round, got 5"),
        ({"contexts": np.full((ROUNDS, 4), np.nan)}, "contexts: expected numbers without NaN, got an entry that"),
        ({"hidden": np.zeros(ROUNDS)}, r"hidden: expected a table with one row per round, got shape \(1200,\)"),
        ({"sensors": ["a", "a", "b"]}, r"sensors: expected 3 distinct names, got \['a', 'a', 'b'\]"),
        ({"arm_names": ["a"]}, "arm_names: expected at least 3 names, one per arm, got 1"),
        ({"alternatives": [3]}, "alternatives: expected models of 3 observed features, got 3"),
    ],
)
def test_invalid_arguments_are_refused(record, changes, message):
    with pytest.raises(hs.HalfseenError, match=f"^{message}") as caught:
        hs.examine(**({"model": truth()} | played(record) | changes))
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------- agents


@pytest.fixture(scope="module")
def agent():
    agent = make_small("adaptive")
    contexts, ys, noise = simulate_rounds(700, missing=0.05)
    play_rounds(agent, contexts, ys, noise)
    return agent, contexts


def test_health_of_an_agent_with_a_history_has_findings(agent):
    health = agent[0].health()
    names = [finding.name for finding in health.findings]
    assert "use of the hidden block" in names
    assert not any(name.startswith("worth of") for name in names)
    assert health.finding("size of surprises").verdict is hs.Verdict.FINE
    assert health.finding("no such thing") is None
    assert [row["finding"] for row in health.table().rows] == names
    text = " ".join(str(health).split())
    assert text.startswith(health.answer)
    assert health.answer.startswith("Yes")
    for finding in health.findings:
        assert finding.sentence in text
        assert (finding.sentence in health.notes) is (finding.verdict is hs.Verdict.BAD)


@pytest.mark.parametrize(
    ("notes", "verdicts", "heading"),
    [
        ((), ("fine",), "nothing wrong"),
        ((), ("fine", "look", "look"), "nothing bad; worth a look: 1, 2"),
        (("a note",), ("look", "bad"), "1 note"),
    ],
)
def test_the_heading_of_health_summarises_its_findings(notes, verdicts, heading):
    findings = tuple(Finding(str(i), 0.0, "0", "–", Verdict(one), "so") for i, one in enumerate(verdicts))
    health = Health(notes, {}, findings)
    assert health.heading == str(health).splitlines()[0] == heading


def test_a_negative_share_is_reported_as_zero():
    shares = {"seen": -0.031, "filtered, nothing hidden": -0.0004, "filtered context": 0.4, "true context": 0.6}
    explained = ExplainedRewards(
        shares,
        context=Improvement(0.4, 0.01),
        filtering=Improvement(-0.0002, 0.01),
        hidden=Improvement(0.4, 0.01),
        recovered=Improvement(0.4, 0.01),
        beyond=None,
        context_at_most=0.42,
        hidden_at_most=0.42,
        recovered_at_most=0.42,
        beyond_at_most=None,
        predictions={},
        arm_means=None,
    )
    subject = SimpleNamespace(plain=False, model=SimpleNamespace(latent=2, observed=1))
    nothing = dict.fromkeys(["calibration", "arms", "sensor_values", "reward_kind", "reward_tails"])
    measured = SimpleNamespace(explained=explained, subject=subject, reward_count=100, **nothing)
    result = {finding.name: finding for finding in reward_findings(measured)}
    sentence = result["rewards explained"].sentence
    assert sentence.startswith(
        "the observation explains 0 % of the variance of rewards around each arm's mean, the filtered context 40"
    )
    assert sentence.endswith("; 0 % means no better than each arm's mean")
    assert result["use of filtering"].shown == "little: +0.0 ± 1.0 %"
    assert "the best description without hidden coordinates 0 %" in result["use of the hidden block"].sentence
    assert "no better" not in result["use of the hidden block"].sentence  # because that share is exactly zero
    assert not any("-0" in finding.shown + finding.sentence for finding in result.values())


@pytest.mark.parametrize(("share", "digits", "text"), [(-0.0, 0, "0 %"), (-0.004, 1, "0.0 %"), (0.125, 1, "12.5 %")])
def test_a_percentage_is_never_negative_zero(share, digits, text):
    assert percent(share, digits) == text


def test_findings_need_a_long_enough_history():
    agent, rng = hs.make("adaptive", observed=2, arms=2, seed=3), np.random.default_rng(3)
    for _ in range(49):
        agent.learn(agent.decide(rng.normal(size=2)), float(rng.normal()))
    assert "findings: from round 50 on" in str(agent.health())
    with pytest.raises(HalfseenError, match=r"finding: expected .* of at least 50 rounds, .*, got 'dimension' without"):
        agent.health().finding("dimension")
    line = "^agent: expected an agent with at least 50 rounds, got 'adaptive' after 49 rounds$"
    with pytest.raises(HalfseenError, match=line):
        hs.examine(agent)
    agent.learn(agent.decide(rng.normal(size=2)), float(rng.normal()))
    assert "findings" not in agent.health().facts


def test_agents_without_a_history_never_have_findings():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=3)
    agent.learn(agent.decide([0.3, 0.4]), 1.0)
    assert "findings" not in agent.health().facts
    with pytest.raises(HalfseenError, match="expected an agent with a model and a history"):
        agent.health().finding("dimension")
    with pytest.raises(HalfseenError, match=r"^agent: expected an 'adaptive' agent .*, got 'ts-pco' after 1 round"):
        hs.examine(agent)


def test_examining_does_not_change_the_agent(agent):
    before = {name: value.tobytes() for name, value in agent[0].state().items()}
    first = hs.examine(agent[0])
    assert str(first) == str(hs.examine(agent[0]))
    assert before == {name: value.tobytes() for name, value in agent[0].state().items()}


def test_an_agent_is_examined_with_additional_tables(agent):
    one, contexts = agent
    result = hs.examine(one, contexts=contexts, hidden=contexts[:, 3:], sensors=["a", "b", "c"])
    assert "true context" in result.measured.explained.shares
    names = [sensor.name for sensor in result.measured.sensor_values]
    assert names == ["a", "b", "c", "hidden 0", "hidden 1"]


def test_retired_arms_are_not_starved():
    agent = hs.make("adaptive", observed=2, arms=["a", "b", "c"], seed=3)
    rng = np.random.default_rng(3)
    for _ in range(200):
        decision = agent.decide(rng.normal(size=2), available=["a", "b"])
        agent.learn(decision, float(rng.normal()))
    assert "c (0)" in agent.health().finding("starved arms").sentence
    agent.retire_arm("c")
    assert "c (0)" not in agent.health().finding("starved arms").sentence


@pytest.mark.parametrize("name", ["kf-ts", "ts-pco", "emkf-ts"])
def test_agents_without_a_history_have_no_findings_and_are_refused(name):
    agent = make_small(name)
    contexts, ys, noise = simulate_rounds(60)
    play_rounds(agent, contexts, ys, noise)
    assert agent.health().findings == ()
    line = f"^agent: expected an 'adaptive' agent that has identified a model, .*, got '{name}' after 60 rounds$"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.examine(agent)


def test_invalid_arguments_with_an_agent_are_refused(agent):
    one = agent[0]
    line = r"^observations: expected none, because an agent is examined with its own history, got some$"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.examine(one, observations=np.zeros((5, 3)))
    with pytest.raises(hs.HalfseenError, match=r"^agent: expected an agent or a model, got both$"):
        hs.examine(one, model=truth())
    with pytest.raises(hs.HalfseenError, match=r"^contexts: expected a table of 700 rows, .*, got shape \(5, 3\)"):
        hs.examine(one, contexts=np.zeros((5, 3)))
    with pytest.raises(hs.HalfseenError, match=r"^rewards: expected 4 columns, one per arm, got 2$"):
        hs.examine(one, rewards=np.zeros((700, 2)))
    with pytest.raises(hs.HalfseenError, match=r"^agent: expected an agent, from hs\.make or hs\.load, got str$"):
        hs.examine("adaptive")


# ---------------------------------------------------------------------- time


def agent_with_gaps(steps, rounds=400, observe_every=0):
    """Return an agent that has decided in rounds `steps(t)` steps apart, with its contexts and rewards of all arms."""
    agent, rng = hs.make("adaptive", observed=2, arms=2, seed=3, latent=3), np.random.default_rng(3)
    turn = 0.97 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    x, contexts = np.zeros(2), []
    for t in range(rounds):
        for _ in range(steps(t)):
            x = turn @ x + 0.3 * rng.normal(size=2)
        y = [x[0] + 0.1 * rng.normal(), rng.normal()]
        if observe_every and t % observe_every == 0:
            agent.observe(y, elapsed=steps(t))
            continue
        decision = agent.decide(y, elapsed=steps(t))
        agent.learn(decision, float(x[1] * (1 - 2 * decision.index) + 0.1 * rng.normal()))
        contexts.append(x)
    contexts = np.array(contexts)
    return agent, contexts, np.stack([contexts[:, 1], -contexts[:, 1]], axis=1)


def test_rows_of_tables_are_assigned_to_decisions_between_gaps():
    agent, contexts, rewards = agent_with_gaps(lambda t: 1 + 3 * (t % 4 == 0))
    found = hs.examine(agent, contexts=contexts, rewards=rewards)
    data = found.measured.subject.data
    decided = ~np.isnan(data.observations[:, 0])
    assert data.rounds > decided.sum() == 400
    np.testing.assert_array_equal(data.contexts[decided], contexts)
    np.testing.assert_array_equal(data.rewards[decided], rewards)
    assert np.isnan(data.rewards[~decided]).all()
    assert verdicts(found)["size of surprises"] is not hs.Verdict.BAD, found
    agent, contexts, _ = agent_with_gaps(lambda t: 1, observe_every=7)
    assert hs.examine(agent).measured.subject.data.rounds == 400
    with pytest.raises(HalfseenError, match=r"^agent: expected an agent that has decided in every round that it has"):
        hs.examine(agent, contexts=contexts)


def test_another_series_begins_after_a_long_gap():
    """With the gap taken for one missing round, the surprise after it would be large."""
    agent, *_ = agent_with_gaps(lambda t: 500 if t % 40 == 39 else 1)
    data = hs.examine(agent).measured.subject.data
    assert data.breaks.sum() == 10
    assert np.isinf(data.series[data.breaks]).all()
    assert verdicts(hs.examine(agent))["size of surprises"] is not hs.Verdict.BAD


def test_a_table_with_gaps_is_examined_with_the_steps_between_its_rows(tmp_path):
    rng, n = np.random.default_rng(2), 900
    turn, x, contexts = 0.99 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]), np.zeros(2), []
    for _ in range(n):
        x = turn @ x + 0.3 * rng.normal(size=2)
        contexts.append(x)
    contexts = np.array(contexts)
    kept = np.flatnonzero(rng.random(n) > 0.3)
    table = {
        "when": kept, "y": contexts[kept, 0] + 0.1 * rng.normal(size=len(kept)), "x": contexts[kept, 1],
        "a": contexts[kept, 1], "b": -contexts[kept, 1],
    }  # fmt: skip
    with pytest.warns(hs.HalfseenWarning, match="the step of 'when' is 1, and there are"):
        world = hs.worlds.recorded(table, observed=["y"], hidden=["x"], rewards=["a", "b"], time="when")
    agent, found = examine_world(world)
    assert agent.policy.extra_rounds[0] == kept[-1] - kept[world.scaling] + 1 - world.length
    assert found.hidden_pays == "much", found
    assert found.forecast.horizon == 20
    found.save(tmp_path)
    summary = json.loads((tmp_path / "health.json").read_text())["forecast"]
    assert summary["arms"] == ["a", "b"]
    assert summary["context_names"][0] == "y"
    assert len(summary["expected"]) == len(summary["context"]) == 20
    page = (tmp_path / "health.html").read_text()
    assert "<h2>Forecast</h2>" in page
    assert "best in 20" in page
