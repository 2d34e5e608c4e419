"""The files of a finished experiment, and the commands that repeat it."""

from __future__ import annotations

import json

import pytest
from experiments.synthetic import ROLES, fabricate, power, recorded_columns
from reports.page import Page

import halfseen as hs
from halfseen.experiments.plan import experiment
from halfseen.experiments.report import reproduce_command, run_command
from halfseen.reports.tables import common_decimals, comparisons
from halfseen.worlds import recorded


@pytest.fixture(scope="module")
def result():
    agents = ["oracle-ts", "lag-ts", "adaptive", "random"]
    return hs.run(agents, world=recorded(recorded_columns(), **ROLES, name="mine & yours"), seeds=3)


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    out = tmp_path_factory.mktemp("saved") / "out"
    result.save(out)
    return out


def test_all_files_are_written(folder):
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
    assert sorted(path.name for path in folder.iterdir()) == names
    summary = json.loads((folder / "summary.json").read_text())
    mean = summary["worlds"]["mine & yours"]["rewards"]["agents"]["adaptive"]["reward_mean"]
    text = (folder / "table.md").read_text()
    assert f"| adaptive | {mean:.{common_decimals([mean])}f} |" in text
    assert "The results assume that playing an arm does not change other rows" in text
    assert (folder / "reward.png").read_bytes()[:4] == b"\x89PNG"


def test_several_worlds_have_separate_figures_of_arms(tmp_path):
    worlds = [recorded(recorded_columns(), **ROLES, name=name) for name in ("one", "two")]
    hs.run(["ts-pco", "random"], world=worlds, seeds=1, rounds=100).save(tmp_path)
    assert {"arms-one.png", "arms-two.svg", "reward.png"} <= {path.name for path in tmp_path.iterdir()}


def test_the_page_is_self_contained_and_escaped(result, folder):
    text = (folder / "report.html").read_text()
    page = Page(text)
    sources = [attributes.get(name) for _, attributes in page.seen for name in ("src", "href")]
    assert all(source is None or source.startswith("data:") for source in sources)
    assert "up &lt;b&gt;" in text
    assert "up <b>" not in text
    assert "mine &amp; yours" in text
    for row in result.table().rows:
        assert row["mean reward"] in page.text
    for line in comparisons(result.summary["worlds"]["mine & yours"]):
        assert line in page.text


def test_the_page_of_real_data_has_a_caveat(tmp_path):
    hs.run(["ts-pco", "random"], world="voltrade", rounds=60, seeds=1).save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert (
        "The rewards are not tradable profits: there are no transaction costs, and nobody trades at the strike" in page
    )
    assert "from the package arch" in page
    assert "halfseen run voltrade --rounds 60 --seeds 1 --agents ts-pco,random" in page


def test_command_of_a_reproduction():
    result = fabricate(["oracle-ts", "emkf-ts", "ts-pco", "lag-ts"], lambda *_: power(0.5))
    assert reproduce_command(result.plan) == (
        "halfseen reproduce --no-map --rounds 2000 --seeds 6 --noise 0.1 --agents oracle-ts,emkf-ts,ts-pco,lag-ts"
    )


def test_command_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = {name.removesuffix(" <b>"): values for name, values in recorded_columns().items()}
    lines = [",".join(data), *(",".join(map(str, row)) for row in zip(*data.values(), strict=True))]
    (tmp_path / "my data.csv").write_text("\n".join(lines))
    world = recorded("my data.csv", observed=["a"], hidden=["c"], rewards=["up", "down"], reward_every=5)
    plan = experiment(["ts-pco", "lag-ts:lags=3"], world, 100, range(7, 9))
    assert run_command(plan) == (
        "halfseen run 'my data.csv' --observed a --hidden c --rewards up,down --reward-every 5 --rounds 100 --seeds 2 "
        "--first-seed 7 --agents ts-pco,lag-ts:lags=3"
    )
    assert run_command(experiment("ts-pco", recorded(data, **(ROLES | {"rewards": ["up", "flat"]})), 9, 1)) is None
    assert run_command(experiment("ts-pco", world, 9, [1, 3])) is None
    short = recorded("my data.csv", observed=["a"], rewards=["up", "down"], scale_on=0.5)
    assert run_command(experiment("ts-pco", short, 9, 1)) is None  # the command has no option for scale_on
