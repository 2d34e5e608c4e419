"""From rows to shares, aims, tables, files and documents."""

import json

import pytest
from benchmarks import harness, report
from benchmarks.harness import Contender, Job
from benchmarks.jobs import JOBS, add_shares, chosen, run_jobs

from halfseen.errors import HalfseenError

BEGIN, END = report.markers("bench")


def row(name, microseconds, ours=2.0, **more):
    empty = {"at_least": None, "at_most": None, "at_most_seconds": None, "note": "", "differs": ""}
    return {"contender": name, "microseconds": microseconds, "times_ours": microseconds / ours} | empty | more


@pytest.fixture
def results():
    entry = {
        "name": "one",
        "title": "A job",
        "unit": "round",
        "flops": 1000,
        "flop_limit": 15.0,
        "absent": ["tortoise: not installed"],
        "contenders": [
            row("halfseen", 2.0),
            row("hare 1.0", 300.0, at_least=100.0, note="jitted"),
            row("snail 2.0", 8.0, at_least=5.0, differs="something else"),
        ],
    }
    process = {
        "name": "start",
        "title": "A start",
        "unit": "process",
        "flops": 0,
        "flop_limit": None,
        "absent": [],
        "contenders": [
            row("import numpy", 2e5, 2e5),
            row("import halfseen", 1e5, 2e5, at_most=2.0),
            row("cold", 1.6e7, 2e5, at_most_seconds=15.0),
        ],
    }
    for one in (entry, process):
        add_shares(one, 1e10)
    return {
        "sizes": {"latent": 20, "observed": 10, "arms": 15},
        "quick": False,
        "machine": {
            "processor": "P",
            "cores": 2,
            "python": "3.11",
            "numpy": "2",
            "scipy": "1",
            "numba": "0",
            "load": [0.5, 1.0],
        },
        "dgemm_gflops": 10.0,
        "peers": {"hare": "1.0"},
        "jobs": [entry, process],
    }


def test_shares_of_dgemm(results):
    entry = results["jobs"][0]
    assert entry["limit_microseconds"] == pytest.approx(0.1)  # 1000 flops at 10 Gflop/s
    assert [one["dgemm_share"] for one in entry["contenders"]] == pytest.approx([0.05, 0.1 / 300, 0.1 / 8])


def test_aims_say_what_is_met_and_what_is_not(results):
    got = {(one["job"], one["contender"]): (one["aim"], one["measured"], one["met"]) for one in report.aims(results)}
    assert got == {
        ("one", "hare 1.0"): ("≥ 100 ×", "150 ×", True),
        ("one", "snail 2.0"): ("≥ 5 ×", "4 ×", False),
        ("one", "halfseen"): ("≤ 15 × the flop limit", "20.0 ×", False),
        ("start", "import halfseen"): ("≤ 2 ×", "0.5 ×", True),
        ("start", "cold"): ("≤ 15 s", "16 s", False),
    }


def test_tables(results):
    first = report.job_table(results["jobs"][0])
    assert first.rows[1] == {
        "contender": "hare 1.0",
        "a round": "300 µs",
        "× ours": "150 ×",
        "aim": "≥ 100 ×",
        "of dgemm": "0.033 %",
        "remarks": "jitted",
    }
    assert report.heading(results["jobs"][0]) == "A job: 1,000 flops a round, 0.1 µs in dgemm"
    assert "of dgemm" not in report.job_table(results["jobs"][1]).columns
    cells = {"job": "A job", "halfseen": "2 µs a round", "of dgemm": "5 %"}
    assert report.summary(results).rows == [cells | {"others": "hare 1.0 150 ×, snail 2.0 4.0 × *"}]
    text = report.markdown(results)
    for part in ("hare 1.0", "tortoise: not installed (one)", "something else", "missed", "Gflop/s"):
        assert part in text


def test_files_and_terminal(results, tmp_path, capsys):
    report.show(results)
    shown = capsys.readouterr().out
    for part in ("A job", "snail 2.0: something else", "not run: tortoise: not installed (one)", "missed", "≥ 100 ×"):
        assert part in shown
    paths = report.save(results, tmp_path / "out")
    assert [path.name for path in paths] == ["bench.json", "bench.md", "bench.png"]
    saved = json.loads(paths[0].read_text())
    assert saved["jobs"] == results["jobs"]
    assert len(saved["aims"]) == 5
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_documents_are_rewritten_between_their_markers(results, tmp_path):
    (tmp_path / "docs/figures").mkdir(parents=True)
    page = tmp_path / "docs/performance.md"
    page.write_text(f"before\n\n{BEGIN}\n\nformer table\n\n{END}\n\nafter\n")
    report.save(results, tmp_path / "out")
    report.write_documents(tmp_path / "out", tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\n\nafter\n")
    assert "former" not in text
    assert "hare 1.0" in text
    report.write_documents(tmp_path / "out", tmp_path)
    assert page.read_text() == text
    assert (tmp_path / "docs/figures/bench.png").is_file()


def test_documents_are_left_alone_where_something_is_wrong(results, tmp_path):
    with pytest.raises(HalfseenError, match=r"expected a folder with the bench\.json"):
        report.write_documents(tmp_path, tmp_path)
    report.save(results | {"quick": True}, tmp_path / "quick")
    with pytest.raises(HalfseenError, match="--quick"):
        report.write_documents(tmp_path / "quick", tmp_path)
    report.save(results, tmp_path / "out")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/performance.md").write_text("no markers")
    with pytest.raises(HalfseenError, match=r"docs/performance\.md: expected one .* got no such pair"):
        report.write_documents(tmp_path / "out", tmp_path)
    assert (tmp_path / "docs/performance.md").read_text() == "no markers"


def test_our_own_document_has_its_markers():
    name = "docs/performance.md"
    report.between_markers((report.ROOT / name).read_text(), "", name)


def test_jobs_are_chosen_by_name():
    assert chosen([]) == list(JOBS)
    assert chosen(["import", "em-500", "import"]) == ["import", "em-500"]
    with pytest.raises(HalfseenError, match="job: expected one of: linear-thompson, , got 'em-50'"):
        chosen(["em-500", "em-50"])


def test_a_run_of_jobs(monkeypatch):
    monkeypatch.setattr(harness, "dgemm_seconds", lambda: [0.02, 0.01])  # here BLAS may have more threads than one

    def small(quick):
        work = {"work": lambda: 7, "units": 1}
        return Job("Small", "unit", 50, [Contender("halfseen", **work), Contender("peer", **work)], lambda a, b: None)

    begun = []

    def starting(name, number, count):
        begun.append((name, number, count))
        return lambda doing, share: None

    results = run_jobs({"small": small}, ["small"], starting, quick=True)
    assert begun == [("small", 0, 1)]
    assert results["quick"] is True
    assert results["dgemm_gflops"] == pytest.approx(2 * 512**3 / 0.01 / 1e9)
    assert results["dgemm_seconds"] == {"before small": [0.02, 0.01], "at the end": [0.02, 0.01]}
    assert [one["contender"] for one in results["jobs"][0]["contenders"]] == ["halfseen", "peer"]
    assert results["jobs"][0]["contenders"][0]["dgemm_share"] > 0
