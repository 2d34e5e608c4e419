"""What is said of agents on recorded data, in numbers, tables, figures and on the page."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.experiments.figures import render_figure
from halfseen.experiments.leaderboard import leaderboard_plan
from halfseen.experiments.plan import experiment
from halfseen.experiments.reward_figures import arms_figure, reward_figure
from halfseen.experiments.reward_report import render_reward_report, rerun_command
from halfseen.experiments.reward_tables import agents_table, arms_table, places_for, significant, verdicts
from halfseen.experiments.rewards import arm_shares, reference_agent
from halfseen.statistics.time_series import hac_mean
from halfseen.worlds import recorded

ROWS = 500
RNG = np.random.default_rng(2)


def table(useful: float = 1.0) -> dict[str, np.ndarray]:
    """Arms paid by a context of which half is hidden; `useful` 0 pays by chance alone."""
    slow = np.cumsum(RNG.normal(size=ROWS)) * 0.2
    a, c = RNG.normal(size=ROWS), RNG.normal(size=ROWS) + slow
    gain = useful * (a + c) + RNG.normal(size=ROWS)
    return {"a": a, "c": c, "up <b>": gain, "down": -gain, "flat": np.zeros(ROWS)}


ROLES = {"observed": ["a"], "hidden": ["c"], "rewards": ["up <b>", "down", "flat"]}


@pytest.fixture(scope="module")
def result():
    agents = ["oracle-ts", "lag-ts", "adaptive", "random"]
    return hs.run(agents, world=recorded(table(), **ROLES, name="mine & yours"), seeds=3)


def test_numbers_are_those_of_the_rewards(result):
    found = result.summary["worlds"]["mine & yours"]["rewards"]
    earned = {agent: result.tracks["mine & yours", agent].reward for agent in result.agents}
    assert found["reference"] == "adaptive"
    for agent, entry in found["agents"].items():
        assert entry["reward_mean"] == pytest.approx(earned[agent].mean())
        assert entry["reward_interval"]["low"] < entry["reward_mean"] < entry["reward_interval"]["high"]
        assert entry["reward_by_seed"] == pytest.approx(earned[agent].mean(axis=1).tolist())
        assert sum(entry["share_of_arms"]) == pytest.approx(1.0)
        share = entry["share_of_full_context"]
        assert share["value"] == pytest.approx(earned[agent].mean() / earned["oracle-ts"].mean())
        if agent == "adaptive":
            assert entry["reference_less_this"] is None
        else:
            wanted = hac_mean(earned["adaptive"].mean(axis=0) - earned[agent].mean(axis=0))
            assert entry["reference_less_this"]["t"] == pytest.approx(wanted.t)
            assert entry["reference_less_this"]["p_holm"] >= wanted.p_value
    world = result.plan.worlds[0]
    assert found["arms"]["up <b>"]["reward_mean"] == pytest.approx(world.rewards[:, 0].mean())
    best = int(np.argmax(world.rewards.mean(axis=0)))
    assert found["best_fixed_arm"] == world.arm_names[best]


def test_rewards_are_those_of_the_arms_played(result):
    world = result.plan.worlds[0]
    for track in result.tracks.values():
        for arms, rewards in zip(track.arm, track.reward, strict=True):
            np.testing.assert_array_equal(rewards, world.rewards[np.arange(world.length), arms])


def test_no_share_of_next_to_nothing():
    result = hs.run(["oracle-ts", "ts-pco"], world=recorded(table(useful=0.0), **ROLES), seeds=2)
    entries = result.summary["worlds"]["recorded"]["rewards"]["agents"]
    assert [entry["share_of_full_context"] for entry in entries.values()] == [None, None]
    assert {row["share of oracle-ts"] for row in result.table().rows} == {"–"}


def test_who_is_compared_with_whom():
    assert reference_agent(("oracle-ts", "ts-pco", "adaptive")) == "adaptive"
    assert reference_agent(("oracle-ts", "random", "ts-pco", "lag-ts")) == "ts-pco"
    assert reference_agent(("oracle-ts",)) == "oracle-ts"


def test_shares_between_edges():
    arms = np.array([[0, 0, 1, 2], [0, 1, 1, 2]])
    np.testing.assert_allclose(arm_shares(arms, 3, np.array([0, 2, 4])), [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])


def fabricated(**changes: float) -> dict[str, object]:
    less = {"value": 0.5, "t": 4.0, "p_holm": 0.001} | changes
    entry = {"reward_mean": 1.0, "reward_interval": {"low": 0.9, "high": 1.1}, "share_of_full_context": None}
    entry |= {"share_of_arms": [0.25, 0.75]}
    return {
        "reference": "adaptive",
        "best_fixed_arm": "up",
        "reference_less_best_fixed_arm": {"value": -0.25, "t": -1.2},
        "agents": {
            "adaptive": entry | {"reference_less_this": None},
            "lag-ts": entry | {"reference_less_this": less},
        },
        "arms": {
            "up": {"reward_mean": 0.1, "reward_hac": {"t": 2.0}},
            "flat": {"reward_mean": 0, "reward_hac": {"t": np.nan}},
        },
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "adaptive earned more than lag-ts: 0.500 a round (t = 4.0, p = 0.001)."),
        ({"value": -0.5, "t": -4.0}, "adaptive earned less than lag-ts: 0.500 a round (t = -4.0, p = 0.001)."),
        ({"p_holm": 0.06}, "adaptive and lag-ts: no difference beyond chance; 0.500 a round (t = 4.0, p = 0.060)."),
    ],
)
def test_only_what_survives_the_correction_is_a_difference(changes, said):
    fixed, line = verdicts(fabricated(**changes))
    assert line == said
    assert fixed == (
        "adaptive earned 0.250 a round less than 'up' played always, the arm that was best in hindsight "
        "(t = -1.2, within chance)."
    )


def test_tables():
    found = fabricated()
    own = agents_table(found, {"adaptive": 300.4, "lag-ts": 7.0})
    assert own.rows[1] == {
        "agent": "lag-ts",
        "mean reward": "1.000",
        "95 % interval": "[0.900, 1.100]",
        "share of oracle-ts": "–",
        "adaptive less this": "0.500",
        "HAC t": "4.0",
        "p (Holm)": "0.001",
        "µs/round": "7",
    }
    assert arms_table(found).rows[1] == {
        "arm": "flat",
        "mean reward if always played": "0.0000",
        "HAC t": "–",
        "adaptive": "75 %",
        "lag-ts": "75 %",
    }


def test_numbers_in_words():
    assert [significant(value) for value in (0.00012345, 12.345, 123456.0, 0.0, np.nan)] == [
        "0.000123",
        "12.3",
        "123,456",
        "0",
        "–",
    ]
    assert [places_for([value]) for value in (0.1756, 8.58, 12345.0, 0.0)] == [4, 3, 0, 0]


def test_everything_is_written(result, tmp_path):
    result.save(tmp_path / "out")
    names = [
        "arms.png",
        "arms.svg",
        "report.html",
        "reward.png",
        "reward.svg",
        "rounds.parquet",
        "summary.json",
        "table.md",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    mean = summary["worlds"]["mine & yours"]["rewards"]["agents"]["adaptive"]["reward_mean"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert f"| adaptive | {mean:.{places_for([mean])}f} |" in text
    assert "no number here can tell" in text
    assert (tmp_path / "out" / "reward.png").read_bytes()[:4] == b"\x89PNG"


def test_several_worlds_side_by_side(tmp_path):
    worlds = [recorded(table(), **ROLES, name=name) for name in ("one", "two")]
    hs.run(["ts-pco", "random"], world=worlds, seeds=1, rounds=100).save(tmp_path)
    assert {"arms-one.png", "arms-two.svg", "reward.png"} <= {path.name for path in tmp_path.iterdir()}


def test_figures_show_all_agents_and_arms(result):
    drawn = reward_figure(result)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(result.agents)
    assert drawn.axes[0].get_ylabel() == "summed reward\nabove random"
    lines = [line for line in drawn.axes[0].lines if len(line.get_xdata()) > 2]
    earned = [result.tracks["mine & yours", agent].reward.mean(axis=0).sum() for agent in result.agents]
    np.testing.assert_allclose([line.get_ydata()[-1] for line in lines], np.array(earned) - earned[-1], atol=1e-9)
    shares = arms_figure(result, "mine & yours")
    assert [axes.get_title() for axes in shares.axes if axes.get_visible()] == list(result.agents)
    assert [text.get_text() for text in shares.legends[0].get_texts()] == ["up <b>", "down", "flat"]
    assert render_figure(shares, "svg") == render_figure(arms_figure(result, "mine & yours"), "svg")
    alone = hs.run("ts-pco", world=result.plan.worlds[0], seeds=1)
    assert reward_figure(alone).axes[0].get_ylabel() == "summed reward"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href") and not value.startswith("data:")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing(result):
    page = render_reward_report(result)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.outside == []
    assert "up &lt;b&gt;" in page
    assert "up <b>" not in page
    assert "mine &amp; yours" in page
    for row in result.table().rows:
        assert row["mean reward"] in page
    for line in verdicts(result.summary["worlds"]["mine & yours"]["rewards"]):
        assert line.split(":")[0].split("'")[0] in page


def test_the_page_of_real_data_says_what_it_is_not():
    result = hs.run(["ts-pco", "random"], world="voltrade", rounds=60, seeds=1)
    page = render_reward_report(result)
    assert "Nothing here is a tradable profit: there are no costs, and nobody sells the strike" in page
    assert "from the package arch" in page
    assert "halfseen run voltrade --rounds 60 --seeds 1 --agents ts-pco,random" in page


def test_how_to_run_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"up <b>": "up", "down": "down", "flat": "flat"}
    data = {names.get(name, name): values for name, values in table().items()}
    lines = [",".join(data), *(",".join(map(str, row)) for row in zip(*data.values(), strict=True))]
    (tmp_path / "my data.csv").write_text("\n".join(lines))
    world = recorded("my data.csv", observed=["a"], hidden=["c"], rewards=["up", "down"], reward_every=5)
    plan = experiment(["ts-pco", "lag-ts:lags=3"], world, 100, range(7, 9))
    assert rerun_command(plan) == (
        "halfseen run 'my data.csv' --observed a --hidden c --rewards up,down --reward-every 5 --rounds 100 --seeds 2 "
        "--first-seed 7 --agents ts-pco,lag-ts:lags=3"
    )
    assert rerun_command(experiment("ts-pco", recorded(data, **(ROLES | {"rewards": ["up", "flat"]})), 9, 1)) is None
    assert rerun_command(experiment("ts-pco", world, 9, [1, 3])) is None
    short = recorded("my data.csv", observed=["a"], rewards=["up", "down"], scale_on=0.5)
    assert rerun_command(experiment("ts-pco", short, 9, 1)) is None  # the command has no option for that


def test_the_leaderboard_leaves_recorded_worlds_alone():
    plan = leaderboard_plan(None, None, 100, 2)
    assert not any(world.recorded for world in plan.worlds)
    with pytest.raises(HalfseenError, match="agents: got 'kf-ts' in 'voltrade'; want one that need not be told"):
        leaderboard_plan(["ts-pco"], "voltrade", 100, 2)
