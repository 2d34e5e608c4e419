"""The documents: their code runs, their links work, and they mention every public name."""

import re
import tomllib
from pathlib import Path

import pytest

import halfseen as hs
from halfseen.worlds.named import NAMED, RECORDED

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*DOCUMENTS, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"))]
# The code of CONTRIBUTING.md is executed by tests/contracts/test_contributing.py.
WITH_CODE = [page for page in DOCUMENTS if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_in_documents_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    exec(compile(code, page.name, "exec"), {"__name__": "a_document"})


def test_the_results_page_shows_what_its_example_prints(capsys):
    text = (ROOT / "docs/results.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]+\n)+)", text, flags=re.DOTALL).groups()
    exec(compile(code, "results.md", "exec"), {"__name__": "a_document"})
    assert capsys.readouterr().out.splitlines() == [line.strip() for line in shown.splitlines()]


def test_the_reference_mentions_every_public_name():
    text = "".join(page.read_text() for page in sorted((ROOT / "docs/reference").glob("*.md")))
    for name in hs.__all__:
        assert f"halfseen.{name}\n" in text, name


def test_the_table_of_bounds_has_every_option():
    text = (ROOT / "docs/agents.md").read_text().partition("### Bounds")[2]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|$", text.partition("\n### ")[0], flags=re.MULTILINE)
    documented = {option.strip("`"): values for options, values in rows for option in options.split(", ")}
    bounds = {option: str(bound) for entry in hs.catalog().values() for option, bound in entry.bounds.items()}
    assert documented == bounds


def test_the_table_of_agents_has_every_agent():
    text = (ROOT / "docs/agents.md").read_text()
    for name in hs.catalog():
        assert f"`{name}`" in text, name


def test_the_table_of_worlds_has_every_world():
    text = (ROOT / "docs/worlds.md").read_text()
    for name in [*NAMED, *RECORDED]:
        assert f"`{name}`" in text, name


def test_the_tests_on_the_page_of_promises_exist():
    named = re.findall(r"`(tests/[^`:]+)::(\w+)`", (ROOT / "docs/promises.md").read_text())
    assert len(named) > 50
    for file, test in named:
        assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(), flags=re.M), f"{file}::{test}"


def test_links_between_documents_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_documents_have_no_html_comments():
    for page in PAGES:
        assert "<!--" not in page.read_text(), page.name


def test_documents_install_the_clone_with_existing_extras():
    """The package is in no registry, so documents must not install it by its bare name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    commands = [line for page in PAGES for line in re.findall(r"pip install [^`#\n]+", page.read_text())]
    assert len(commands) >= 6
    for line in commands:
        match = re.fullmatch(r"pip install (?:\.|'\.\[([a-z,]+)\]')\s*", line)
        assert match, line
        assert set((match[1] or "data").split(",")) <= set(extras), line


def test_prose_wraps_at_100_columns():
    too_long = []
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), page.read_text(), flags=re.DOTALL | re.M)
        for number, line in enumerate(text.splitlines(), start=1):
            not_prose = re.match(r"    |\||#|!\[|\[!\[|[-*\s]*\[[^]]*\]\(\S*\)\S*$|\[[^]]*\]: ", line)
            if len(line) > 100 and not not_prose:
                too_long.append(f"{page.relative_to(ROOT)}, line {number}: {len(line)} columns")
    assert not too_long, "\n".join(too_long)
