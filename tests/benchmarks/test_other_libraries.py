"""The page "Add an agent" shows the adapters that `python -m benchmarks.other_libraries` checks and plays."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def classes(code):
    return {node.name: ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.ClassDef)}


def test_the_page_shows_the_adapters():
    page = (ROOT / "docs/how-to/own-agent.md").read_text()
    shown = classes("\n".join(re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)))
    assert shown == classes((ROOT / "benchmarks/other_libraries.py").read_text())
