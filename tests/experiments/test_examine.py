"""hs.examine and the findings of health(): planted faults, sensors, what is written, bad input."""

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
from halfseen.reports.tables import percent

LATENT, SEEN, ROUNDS = 4, 3, 1200


def truth(radius=0.97, seed=0):
    """A model of three sensors, the last of which shows a coordinate of its own that pays nothing."""
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
    ys = contexts[:, :SEEN] + np.sqrt(0.02) * rng.normal(size=(ROUNDS, SEEN))
    slopes = np.array([[1.0, 0.3, 0.0, 1.2], [-1.0, 0.2, 0.0, -0.8], [0.5, -0.4, 0.0, -1.0]])
    rewards = contexts @ slopes.T + 0.2 * rng.normal(size=(ROUNDS, 3))
    return {"observations": ys, "rewards": rewards, "contexts": contexts}


def played(record, seed=1):
    arms = np.random.default_rng(seed).integers(3, size=ROUNDS)
    return record | {"arms": arms, "rewards": record["rewards"][np.arange(ROUNDS), arms]}


def verdicts(examination):
    return {finding.name: finding.verdict for finding in examination.findings}


def test_a_right_model_is_fine(record):
    found = hs.examine(model=truth(), fitted=False, **played(record))
    assert set(verdicts(found).values()) == {hs.Verdict.FINE}, found
    assert found.ok
    assert found.hidden_pays == "much"
    assert found.filtering_pays == "little"
    shares = found.measured.explained.shares
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
def test_planted_faults_are_bad(record, changes, name):
    found = hs.examine(model=replace(truth(), **changes), fitted=False, **played(record))
    assert verdicts(found)[name] is hs.Verdict.BAD, found
    assert not found.ok


def test_a_starved_arm_is_named(record):
    few = played(record)
    few["arms"] = np.where(few["arms"] == 2, 1, few["arms"])
    few["arms"][[3, 700]] = 2
    few["rewards"] = record["rewards"][np.arange(ROUNDS), few["arms"]]
    found = hs.examine(model=truth(), fitted=False, arm_names=["low", "middle", "high"], **few)
    finding = found.finding("starved arms")
    assert finding.verdict is hs.Verdict.LOOK
    assert "high (2)" in finding.sentence


def test_sensors_are_worth_what_they_tell(record):
    found = hs.examine(
        model=truth(),
        fitted=False,
        sensors=["all", "some", "none"],
        hidden=np.column_stack([record["contexts"][:, 3], np.random.default_rng(0).normal(size=ROUNDS)]),
        hidden_names=["the hidden one", "noise"],
        **record,
    )
    worth = {one.name: one for one in found.measured.sensor_values}
    assert worth["all"].share.value > 0.5
    assert 0.01 < worth["some"].share.value < 0.2
    assert abs(worth["none"].share.value) < 0.002
    assert worth["the hidden one"].share.value > 0.02
    assert worth["the hidden one"].hidden
    assert abs(worth["noise"].share.value) < 0.002
    assert "could be removed" in found.finding("worth of none").sentence
    assert "the greedy choice would lose" in found.finding("worth of all").sentence
    # In money: the greedy choice on the true context can at most win what is left.
    assert worth["all"].greedy_reward > 10 * abs(worth["none"].greedy_reward)
    assert worth["all"].greedy_reward > worth["some"].greedy_reward > 0


def test_money_is_told_only_where_all_arms_are_known(record):
    assert all(one.greedy_reward is None for one in hs.examine(model=truth(), **played(record)).measured.sensor_values)


def test_a_single_sensor_can_be_examined(record):
    D = truth().transition[np.ix_([0, 3], [0, 3])]
    model = hs.LinearGaussianModel(transition=D, process_cov=0.05, observation_cov=[0.02])
    told = played(record)
    found = hs.examine(model=model, fitted=False, **(told | {"observations": told["observations"][:, :1]}))
    (worth,) = found.measured.sensor_values
    assert worth.share.value == pytest.approx(found.measured.explained.shares["filtered context"], abs=1e-9)


def test_dimensions_are_scored_against_each_other(record):
    ys = record["observations"]
    small = hs.fit(ys, latent=3, max_iterations=40).model
    found = hs.examine(model=small, alternatives=[truth()], **played(record))
    assert found.measured.scores[4] > found.measured.scores[3] + 30
    assert found.finding("dimension").verdict is hs.Verdict.LOOK
    assert hs.examine(model=truth(), alternatives=[small], **played(record)).finding("dimension").value == 4


def test_missing_entries_and_rewards(record):
    rng, told = np.random.default_rng(2), played(record)
    ys, rewards = told["observations"].copy(), told["rewards"].copy()
    ys[rng.random(ys.shape) < 0.2] = np.nan
    ys[5] = np.nan
    rewards[rng.random(ROUNDS) < 0.3] = np.nan
    found = hs.examine(model=truth(), fitted=False, **(told | {"observations": ys, "rewards": rewards}))
    assert found.ok, found
    assert found.hidden_pays == "much"


def test_without_rewards_only_the_model_is_examined(record):
    found = hs.examine(model=truth(), observations=record["observations"])
    assert found.hidden_pays is None
    assert found.measured.sensor_values is None
    assert "size of surprises" in verdicts(found)
    assert "rewards explained" not in verdicts(found)


def test_few_rounds_say_little(record):
    told = {name: value[:5] for name, value in played(record).items()}
    found = hs.examine(model=truth(), **told)
    assert found.ok
    assert {"spectral radius", "observability of the hidden block"} == set(verdicts(found))


def test_equal_rewards_and_constant_sensors(record):
    ys = np.column_stack([np.full(200, 3.0), record["observations"][:200, 0]])
    model = hs.LinearGaussianModel(transition=0.9 * np.eye(2), process_cov=0.1, observation_cov=[0.1, 0.1])
    found = hs.examine(model=model, observations=ys, arms=np.zeros(200, dtype=int), rewards=np.full(200, 2.0))
    assert found.hidden_pays is None
    still = np.zeros((200, 2))
    found = hs.examine(model=model, observations=still, arms=np.zeros(200, dtype=int), rewards=np.arange(200.0))
    assert found.finding("size of surprises") is None  # nothing has moved: nothing can be said


def test_what_is_written(record, tmp_path):
    found = hs.examine(model=truth(), alternatives=[truth(0.9)], title="A <title>", **record)
    written = found.save(tmp_path / "out")
    assert sorted(path.name for path in written) == ["health.html", "health.json", "health.png", "health.svg"]
    page = (tmp_path / "out/health.html").read_text()
    assert "A &lt;title&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    for finding in found.findings:
        assert finding.name in page
    summary = json.loads((tmp_path / "out/health.json").read_text())
    assert summary["hidden_pays"] == "much"
    assert [entry["name"] for entry in summary["findings"]] == [finding.name for finding in found.findings]
    found.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert [row["finding"] for row in found.table().rows] == [finding.name for finding in found.findings]
    assert str(found).count("\n") == len(found.findings) - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "agent: expected one of the two, got neither agent nor model"),
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
def test_bad_input_is_one_clear_line(record, changes, message):
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
    for finding in health.findings:
        assert finding.sentence in str(health)
        assert (finding.sentence in health.notes) is (finding.verdict is hs.Verdict.BAD)


@pytest.mark.parametrize(
    ("notes", "verdicts", "heading"),
    [
        ((), ("fine",), "nothing wrong"),
        ((), ("fine", "look", "look"), "nothing bad; worth a look: 1, 2"),
        (("a note",), ("look", "bad"), "1 note"),
    ],
)
def test_the_heading_of_a_health_agrees_with_its_findings(notes, verdicts, heading):
    findings = tuple(Finding(str(i), 0.0, "0", "–", Verdict(one), "so") for i, one in enumerate(verdicts))
    health = Health(notes, {}, findings)
    assert health.heading == str(health).splitlines()[0] == heading


def test_a_share_below_nothing_is_told_as_none_with_the_reason():
    shares = {"seen": -0.031, "filtered, nothing hidden": -0.0004, "filtered context": 0.4, "true context": 0.6}
    gains = Improvement(0.4, 0.01), Improvement(-0.0002, 0.01), Improvement(0.4, 0.01)
    explained = ExplainedRewards(shares, *gains, {}, None)
    subject = SimpleNamespace(plain=False, model=SimpleNamespace(latent=2, observed=1))
    measured = SimpleNamespace(explained=explained, calibration=None, arms=None, sensor_values=None, subject=subject)
    found = {finding.name: finding for finding in reward_findings(measured)}
    told = found["rewards explained"].sentence
    assert told.startswith(
        "the observation explains 0 % of the variance of rewards around each arm's mean, the filtered context 40"
    )
    assert told.endswith("; 0 % means no better than each arm's mean")
    assert found["use of filtering"].shown == "little: +0.0 ± 1.0 %"
    assert "the best description without hidden coordinates 0 %" in found["use of the hidden block"].sentence
    assert "no better" not in found["use of the hidden block"].sentence  # nothing, but not less than nothing
    assert not any("-0" in finding.shown + finding.sentence for finding in found.values())


@pytest.mark.parametrize(("share", "digits", "said"), [(-0.0, 0, "0 %"), (-0.004, 1, "0.0 %"), (0.125, 1, "12.5 %")])
def test_no_percentage_is_a_negative_zero(share, digits, said):
    assert percent(share, digits) == said


def test_findings_come_with_a_history_that_is_long_enough():
    agent, rng = hs.make("adaptive", observed=2, arms=2, seed=3), np.random.default_rng(3)
    for _ in range(49):
        agent.learn(agent.decide(rng.normal(size=2)), float(rng.normal()))
    assert "findings: from round 50 on" in str(agent.health())
    with pytest.raises(HalfseenError, match=r"finding: expected .* of at least 50 rounds, .*, got 'dimension' without"):
        agent.health().finding("dimension")
    with pytest.raises(HalfseenError, match="agent: expected at least 50, got 'adaptive' after 49 rounds"):
        hs.examine(agent)
    agent.learn(agent.decide(rng.normal(size=2)), float(rng.normal()))
    assert "findings" not in agent.health().facts


def test_agents_without_a_history_never_have_findings():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=3)
    agent.learn(agent.decide([0.3, 0.4]), 1.0)
    assert "findings" not in agent.health().facts
    with pytest.raises(HalfseenError, match="expected an agent with a model and a history"):
        agent.health().finding("dimension")
    with pytest.raises(HalfseenError, match="after 1 rounds, which has no kept history with a model"):
        hs.examine(agent)


def test_examining_changes_nothing(agent):
    before = {name: value.tobytes() for name, value in agent[0].state().items()}
    first = hs.examine(agent[0])
    assert str(first) == str(hs.examine(agent[0]))
    assert before == {name: value.tobytes() for name, value in agent[0].state().items()}


def test_an_agent_is_examined_with_what_else_is_known(agent):
    one, contexts = agent
    found = hs.examine(one, contexts=contexts, hidden=contexts[:, 3:], sensors=["a", "b", "c"])
    assert "true context" in found.measured.explained.shares
    names = [worth.name for worth in found.measured.sensor_values]
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
    with pytest.raises(hs.HalfseenError, match=f"^agent: got '{name}' after 60 rounds, which has no kept history"):
        hs.examine(agent)


def test_bad_input_beside_an_agent(agent):
    one = agent[0]
    with pytest.raises(hs.HalfseenError, match=r"^observations: got a record beside an agent"):
        hs.examine(one, observations=np.zeros((5, 3)))
    with pytest.raises(hs.HalfseenError, match=r"^agent: got both a model and an agent"):
        hs.examine(one, model=truth())
    with pytest.raises(hs.HalfseenError, match=r"^contexts: expected a table of 700 rows, got shape \(5, 3\)"):
        hs.examine(one, contexts=np.zeros((5, 3)))
    with pytest.raises(hs.HalfseenError, match=r"^rewards: expected 4, one per arm, got 2 columns"):
        hs.examine(one, rewards=np.zeros((700, 2)))
    with pytest.raises(hs.HalfseenError, match=r"^agent: expected an agent, got str"):
        hs.examine("adaptive")
