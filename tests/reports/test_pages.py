"""Pages are complete, self-contained and escaped, and they agree with the data."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from experiments.synthetic import fabricate, power
from jinja2 import UndefinedError
from reports.page import Page

from halfseen.errors import MissingExtra
from halfseen.experiments.claims import Claim, ClaimVerdict, Evidence, evaluate_claims
from halfseen.experiments.report import reproduction_report, result_figure
from halfseen.experiments.result import Result
from halfseen.reports import pages
from halfseen.reports.figures import render_figure
from halfseen.statistics.confidence_intervals import Estimate


def report(result: Result, claims: Sequence[Claim]) -> str:
    return reproduction_report(result, claims, render_figure(result_figure(result), "svg"))


def regret(world: str, agent: str, seed: int) -> np.ndarray:
    return power({"ts-pco": 1.0, "emkf-ts": 0.6}.get(agent, 0.5), scale=1.0 + 0.05 * seed)


@pytest.fixture(scope="module")
def result() -> Result:
    return fabricate(["oracle-ts", "emkf-ts", "ts-pco", "lag-ts"], regret)


@pytest.fixture(scope="module")
def text(result: Result) -> str:
    return report(result, evaluate_claims(result))


def test_the_page_shows_every_finding_and_verdict(result: Result, text: str) -> None:
    page = Page(text)
    claims = evaluate_claims(result)
    assert {finding.verdict for claim in claims for finding in claim.findings} >= {
        ClaimVerdict.HOLDS,
        ClaimVerdict.FAILS,
    }
    for claim in claims:
        assert [claim.title, *claim.verdicts.values()] in page.rows
        assert claim.paper in page.text
        assert claim.test in page.text
        for finding in claim.findings:
            row = [finding.world, finding.subject, f"{finding.figure:{claim.form}}", finding.verdict]
            assert page.rows.count(row) >= 1
    shown = re.findall(r'<span class="verdict (\w+)">([^<]+)</span>', text)
    assert len(shown) == sum(len(claim.verdicts) + len(claim.findings) for claim in claims)
    assert all(ClaimVerdict[name.upper()] == verdict_text for name, verdict_text in shown)


@pytest.mark.parametrize("verdict", list(ClaimVerdict))
def test_the_table_follows_the_verdict(result: Result, verdict: ClaimVerdict) -> None:
    finding = Evidence(result.worlds[0], "emkf-ts", Estimate(0.5, 0.4, 0.6), verdict)
    page = Page(report(result, [Claim("a claim", "said", "tested", (finding,))]))
    assert ["a claim", verdict] in page.rows


def test_results_agree_with_the_summary(result: Result, text: str) -> None:
    rows = Page(text).rows
    for world in result.worlds:
        for agent in result.agents:
            entry = result.summary["worlds"][world]["agents"][agent]
            row = next(row for row in rows if row[:2] == [world, agent] and "±" in row[2])
            mean, error = row[2].split(" ± ")
            digits = 0 if entry["regret_mean"] >= 100 else 2
            assert mean == f"{entry['regret_mean']:,.{digits}f}"
            assert error == f"{entry['regret_standard_error']:,.{digits}f}"


def test_self_contained(text: str) -> None:
    page = Page(text)
    assert not {tag for tag, _ in page.seen} & {"script", "link", "iframe", "object"}
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    assert not re.search(r"url\(|@import|https?://", text)
    images = page.tags("img")
    assert len(images) == 2
    for image in images:
        assert image["alt"]
        kind, _, content = (image["src"] or "").partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(content).rstrip().endswith(b"</svg>")


def test_accessible(text: str) -> None:
    page = Page(text)
    assert page.tags("html")[0]["lang"] == "en"
    assert len(page.tags("h1")) == 1
    assert len(page.tags("caption")) == len(page.tags("table")) > 5
    assert all(head["scope"] in ("col", "row") for head in page.tags("th"))
    assert any(meta.get("name") == "viewport" for meta in page.tags("meta"))
    assert "prefers-color-scheme: dark" in text


def test_names_are_escaped(result: Result) -> None:
    unsafe = '<script>alert("1")</script>&'
    finding = Evidence("orbit", unsafe, Estimate(1.0, 0.5, 1.5), ClaimVerdict.FAILS)
    page = Page(report(result, [Claim(unsafe, unsafe, unsafe, (finding,))]))
    assert not page.tags("script")
    assert unsafe in page.text


def test_settings_and_versions(result: Result, text: str) -> None:
    page = Page(text)
    assert "halfseen reproduce --no-map --rounds 2000 --seeds 6" in page.text
    emkf = next(row for row in page.rows if row[0] == "emkf-ts" and "latent" in row[2])
    assert "window" in emkf[3]
    for name, version in result.summary["versions"].items():
        assert f"{name} {version}" in page.text


def test_one_seed(result: Result) -> None:
    single_seed = fabricate(["emkf-ts", "ts-pco"], regret, seeds=1)
    page = Page(report(single_seed, evaluate_claims(single_seed)))
    assert "nan" not in page.text.replace("nanm", "")
    assert "1 seed (0 to 0)" in page.text


def test_linear_regret_of_bayes_is_mentioned() -> None:
    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        return power(1.0 if agent == "bayes" and world == "orbit" else 0.5)

    text = Page(report(fabricate(["bayes", "emkf-ts"], regret), [])).text
    assert "The agent bayes knows the model and the arms but not the full context." in text
    assert "linearly in orbit (β = 1.00 [1.00, 1.00])" in text
    plain = Page(report(fabricate(["bayes", "emkf-ts"], lambda *_: power(0.5)), [])).text
    assert "The agent bayes" not in plain


def test_rows_with_the_same_first_cell_are_grouped() -> None:
    rows = [["a", "1"], ["a", "2"], ["b", "3"]]
    assert pages._groups(rows) == [rows[:2], rows[2:]]
    assert pages._groups(rows[1:]) == [rows[1:]]


def test_missing_data_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        pages.render("health.html", measured={})


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    pages._environment.cache_clear()
    with pytest.raises(MissingExtra, match=r"halfseen\[experiments\]"):
        pages.render("docs.css")
