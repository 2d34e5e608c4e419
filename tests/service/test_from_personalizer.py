"""The code in docs/how-to/from-personalizer.md, which imports an existing log into a stream."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from service.served import run_here, serving

import halfseen as hs

PAGE = Path(__file__).parents[2] / "docs/how-to/from-personalizer.md"


def test_a_stream_learns_from_an_imported_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    rows = [
        (f"2026-03-01T17:{n // 60:02}:{n % 60:02}+00:00", [n % 5, 1], arm, 0.5, float(arm == "sport"))
        for n, arm in enumerate(["news", "sport"] * 200)
    ]
    spec = {"name": "home", "observed": ["hour", "weekend"], "arms": ["news", "sport"], "seed": 1, "agent": "ts-pco"}
    changed = re.sub(r"(?s)^log = \[.*?^\]\nspec = .*?$", "log, spec = rows, chosen", code, flags=re.MULTILINE)
    assert changed != code
    monkeypatch.chdir(tmp_path)
    exec(compile(changed, PAGE.name, "exec"), {"rows": rows, "chosen": spec})
    done = run_here(tmp_path, "import", "home.ndjson")
    assert done.returncode == 0, done.stderr
    with serving(tmp_path) as service, hs.Client(service.url) as client:
        decision = client.decide("home", {"hour": 2, "weekend": 1})
        assert decision.propensities[1] > 0.9
        assert decision.expected == pytest.approx([0, 1], abs=0.1)
        assert client.reward("home", decision, 1.0).folded
        lines = httpx.get(service.url + "/v1/streams/home/journal").text.splitlines()
        assert len(lines) == 1 + 2 * 400 + 2


def test_the_log_on_the_page_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, PAGE.name, "exec"), {})
    done = run_here(tmp_path, "import", "home.ndjson")
    assert (done.returncode, done.stdout) == (0, "home: 7 events\n"), done.stderr


def test_an_agent_learns_while_a_rule_chooses_the_arms(tmp_path: Path) -> None:
    with serving(tmp_path) as service, hs.Client(service.url) as client:
        client.create_stream("home", observed=1, arms=["news", "sport"], agent="ts-pco", seed=1)
        for _ in range(50):
            decision = client.decide("home", [1.0], available=["sport"])
            assert (decision.arm, decision.propensity) == ("sport", pytest.approx(1.0))
            client.reward("home", decision, 1.0)
        assert client.decide("home", [1.0], available=["news"]).expected == pytest.approx([0, 1], abs=0.1)
