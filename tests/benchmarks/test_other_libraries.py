"""The adapters for other libraries on the page "Add an agent" are those that run, where the libraries are installed."""

import ast
import re
from pathlib import Path

import pytest
from benchmarks.other_libraries import AGENTS

import halfseen as hs

ROOT = Path(__file__).parents[2]


def classes(code):
    return {node.name: ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.ClassDef)}


def test_the_page_shows_the_adapters():
    page = (ROOT / "docs/how-to/own-agent.md").read_text()
    shown = classes("\n".join(re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)))
    assert shown == classes((ROOT / "benchmarks/other_libraries.py").read_text())


@pytest.mark.parametrize("library", AGENTS)
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_passes_the_checks_and_plays(library):
    pytest.importorskip(library)
    hs.check_agent(AGENTS[library])
    result = hs.run([AGENTS[library], "random"], world="keyhole", rounds=200, seeds=1)
    ours, chance = (result.tracks["keyhole", agent].regret[:, 100:].mean() for agent in result.agents)
    assert ours < chance
