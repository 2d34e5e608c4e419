"""The command line, run in temporary folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer import testing

import halfseen
from halfseen.cli.app import build_app, run_app
from halfseen.cli.arguments import split_numbers, split_specs
from halfseen.errors import HalfseenError

COMMAND = [sys.executable, "-m", "halfseen"]
SOURCE = str(Path(halfseen.__file__).parents[1])


def environment(columns: int = 80) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": SOURCE, "COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def halfseen_command(*arguments: str, cwd: Path, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(columns),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def alive_in_session(session: int) -> list[str]:
    """Return the processes of the session that are still running. Zombies do not count."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = entry.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(owner) == session and state != "Z":
            found.append(entry.parent.name)
    return found


def start_command(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the command in a new session, without coverage, which keeps a lock if a signal arrives while it has it."""
    variables = environment() | {"PYTHONFAULTHANDLER": "1"}
    variables.pop("COVERAGE_PROCESS_CONFIG", None)
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupt(process: subprocess.Popen[str]) -> list[str]:
    """Send SIGINT to the process and its children, as a terminal does, and return the lines of stderr."""
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGABRT)  # the fault handler prints what every thread is doing
        process.wait(timeout=10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the children
        out, err = process.communicate()
        pytest.fail(f"the interrupted command did not end:\n{out}\n{err}")
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
    assert_session_ended(process.pid)
    return err.splitlines()


def assert_session_ended(session: int, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds  # the resource tracker of multiprocessing ends a little later
    while alive_in_session(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive_in_session(session) == []


def test_reproduce_writes_everything(tmp_path: Path) -> None:
    done = halfseen_command(
        *("reproduce", "--rounds", "300", "--seeds", "2", "--map-seeds", "2", "--noise", "0.1,1"),
        *("--jobs", "2", "--out", "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    names = ["map-300.png", "map-300.svg", "regret.png", "regret.svg", "report.html", "rounds.parquet", "summary.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*names, "slices"])
    assert all(name in done.stdout for name in names)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["worlds"]) == ["paper ε=0.1", "paper ε=1", "paper ε=0.001 Σ=0.1", "orbit"]
    for claim in summary["claims"]:
        assert claim["title"].split()[0] in done.stdout
        assert all(verdict in done.stdout for verdict in claim["verdicts"].values())
    mean = summary["worlds"]["orbit"]["agents"]["em-rts-ts"]["regret_mean"]
    assert f"{mean:.0f}" in done.stdout
    for panel in summary["maps"][0]["panels"]:
        assert panel["statement"] in " ".join(done.stdout.split())
    lines = done.stderr.splitlines()
    assert lines[0] == "playing 7 agents × 4 worlds × 2 seeds × 300 rounds"
    assert "playing the map: 20 cells × 2 seeds × 300 rounds" in lines
    assert lines[-1].startswith("done in")


RECORDED_FILES = [
    *("arms.png", "arms.svg", "report.html", "reward.png", "reward.svg", "rounds.parquet"),
    *("slices", "summary.json", "table.md"),
]


@pytest.mark.parametrize(
    "world", ["voltrade", *(pytest.param(world, marks=pytest.mark.slow) for world in ("power", "returns"))]
)
def test_run_on_real_data(tmp_path: Path, world: str) -> None:
    done = halfseen_command(
        *("run", world, "--rounds", "150", "--seeds", "2", "--jobs", "1", "--out", "o"), cwd=tmp_path, columns=100
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == RECORDED_FILES
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert list(summary["agents"]) == ["oracle-ts", "adaptive", "lag-ts", "ts-pco", "emkf-ts", "random"]
    assert all(agent in done.stdout for agent in summary["agents"])
    assert "The rewards are not tradable profits" in (tmp_path / "o" / "report.html").read_text()


STEPS = {"a": 3, "b": 5, "c": 7, "r": 2, "s": 11}


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_run_on_a_table(tmp_path: Path, ending: str) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table({name: [float((i * step) % 17) for i in range(120)] for name, step in STEPS.items()})
    path = tmp_path / f"mine.{ending}"
    csv.write_csv(table, path) if ending == "csv" else parquet.write_table(table, path)
    columns = ("--observed", "a,b", "--hidden", "c", "--rewards", "r", "--rewards", "s", "--reward-every", "4")
    done = halfseen_command(
        *("run", path.name, *columns, "--seeds", "2", "--jobs", "2", "--out", "o"), cwd=tmp_path, columns=80
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "playing 6 agents × 1 world × 2 seeds × 96 rounds"
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == RECORDED_FILES
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = (tmp_path / "o" / "report.html").read_text()
    again = f"halfseen run {path.name} --observed a,b --hidden c --rewards r,s --reward-every 4 --rounds 96 --seeds 2"
    assert again in page
    assert "tradable" not in page


@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_run_fits_the_terminal_and_shows_all_numbers(tmp_path: Path, columns: int) -> None:
    done = halfseen_command(
        *("run", "orbit", "paper:noise=0.5", "--rounds", "400", "--seeds", "3", "--jobs", "1", "--out", "o"),
        *("--agents", "kf-ts,emkf-ts:window=400,initial_process_var=2", "--agents", "ts-pco:width=0.5"),
        cwd=tmp_path,
        columns=columns,
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= columns + 1  # a combining accent takes no column
    assert "…" not in done.stdout
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert list(summary["agents"]) == ["kf-ts", "emkf-ts:window=400,initial_process_var=2", "ts-pco:width=0.5"]
    assert list(summary["worlds"]) == ["orbit", "paper ε=0.5"]
    for entry in summary["worlds"]["orbit"]["agents"].values():
        growth = entry["growth_exponent"]
        assert f"{entry['regret_mean']:.0f} " in done.stdout
        assert f"{growth['value']:.2f} [{growth['low']:.2f}, {growth['high']:.2f}]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "orbit", "--agents", "emkf-tss"], "Did you mean 'emkf-ts'?"),
        (["run", "orbitt", "--agents", "kf-ts"], "Did you mean 'orbit'?"),
        (["run", "orbit", "--agents", "kf-ts:widht=2"], "Did you mean 'width'?"),
        (["run", "paper:noise=-1", "--agents", "kf-ts"], "noise"),
        (["run", "orbit", "--agents", "kf-ts,kf-ts"], "agents: expected no duplicates, got kf-ts, kf-ts"),
        (["run", "orbit", "--agents", ","], "at least one"),
        (
            ["run", "voltrade", "--agents", "kf-ts"],
            "agents: expected agents that do not require model, which is unknown for recorded data, "
            "got 'kf-ts' in 'voltrade'",
        ),
        (
            ["run", "voltrade", "orbit"],
            "world: expected only recorded or only simulated worlds, got 'voltrade' (recorded) and 'orbit' (simulated)",
        ),
        (["run", "voltrade", "--rounds", "5000"], "rounds: expected at most 3968, the length of 'voltrade', got 5000"),
        (
            ["run", "voltrade", "power"],
            "rounds: expected a number, as the worlds have different lengths, got none, with 3968 in 'voltrade', "
            "12720 in 'power'",
        ),
        (
            ["run", "none.csv", "--observed", "a", "--rewards", "r,s"],
            "expected an existing file, got 'none.csv'",
        ),
        (
            ["run", "none.csv", "--rewards", "r,s"],
            "observed: expected columns of 'none.csv', separated by commas, got none",
        ),
        (
            ["run", "none.csv", "--observed", "a"],
            "rewards: expected columns of 'none.csv', separated by commas, got none",
        ),
        (
            ["run", "none.csv", "orbit", "--observed", "a", "--rewards", "r,s"],
            "world: expected one table and no other world, got 'none.csv' with others",
        ),
        (
            ["run", "orbit", "--hidden", "a"],
            "hidden: expected no value unless the world is a table such as data.csv, got 'orbit'",
        ),
        (
            ["run", "orbit", "--reward-every", "3"],
            "reward-every: expected no value unless the world is a table such as data.csv, got 'orbit'",
        ),
        (["run", "orbit", "--agents", "kf-ts", "--rounds", "0"], "--rounds"),
        (["run", "orbit", "--agents", "kf-ts", "--jobs", "0"], "--jobs"),
        (["run", "orbit", "--resume"], "resume: expected the folder of the interrupted run as --out, got no --out"),
        (["run", "orbit", "--out", "file/o", "--resume"], "out: expected a writable folder ('"),
        (
            ["run", "orbit", "--cluster", "local:0"],
            "cluster: expected 'local:N', or the address of a scheduler such as tcp://host:8786, got 'local:0'",
        ),
        (
            ["run", "orbit", "--cluster", "local:2", "--jobs", "2"],
            "jobs: expected either --jobs or --cluster, got --jobs 2 and --cluster",
        ),
        (
            ["reproduce", "--cluster", "somewhere"],
            "cluster: expected 'local:N', or the address of a scheduler such as tcp://host:8786, got 'somewhere'",
        ),
        (
            ["leaderboard", "--cluster", "tcp://x"],
            "cluster: expected 'local:N', or the address of a scheduler such as tcp://host:8786, got 'tcp://x'",
        ),
        (
            ["leaderboard", "--cluster", "local:2", "--jobs", "2"],
            "jobs: expected either --jobs or --cluster, got --jobs 2 and --cluster",
        ),
        (["leaderboard", "--resume", "--fresh"], "resume: expected either --resume or --fresh, got both"),
        (["reproduce", "--noise", "0.1,loud"], "'loud'"),
        (["reproduce", "--quick", "--out", "file/below"], "out: expected a writable folder ('"),
        (["reproduce", "--nonsense"], "--nonsense"),
        (["reproduce", "--no-map", "--long"], "long: expected the map, which --long repeats, got --no-map"),
        (["reproduce", "--rounds", "1000000000000"], "rounds: expected few enough rounds and seeds for"),
        (["run", "paper:sensor_noise=-1"], "sensor_noise: expected a finite number of at least 0, got -1"),
        (["run", "keyhole:observed=9"], "observed: expected at most 8, the dimension of the context, got 9"),
        (["leaderboard", "--agents", "kf-tss"], "Did you mean 'kf-ts'?"),
        (["leaderboard", "--worlds", "orbit,switch:at=0"], "at: expected an integer of at least 1, got 0"),
        (["leaderboard", "--rounds", "0"], "--rounds"),
        (["leaderboard", "--out", "file/below"], "is not a folder), got 'file/below'"),
        (["leaderboard", "--markdown", "file/below.md"], "is not a folder), got 'file'"),
        (["leaderboard", "--markdown", "."], "markdown: expected the name of a file, got '.'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    assert run_app(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("arguments", [["run", "orbit", "--agents", "emkf-tss"], ["reproduce", "--rounds", "0"]])
def test_bad_input_exits_with_2(tmp_path: Path, arguments: list[str]) -> None:
    done = halfseen_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_interrupted_run_without_slices_writes_nothing(tmp_path: Path, jobs: str) -> None:
    process = start_command(
        *("reproduce", "--rounds", "1000000", "--seeds", "2", "--jobs", jobs, "--out", "deep/out"), cwd=tmp_path
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("playing")
    time.sleep(3.0)  # until the workers have started
    assert interrupt(process)[-1] == "Interrupted. Nothing was written."
    assert list(tmp_path.iterdir()) == []


WORLDS = ("--worlds", "keyhole,switch:at=30")
BOARD = ("leaderboard", *WORLDS, "--agents", "ts-pco,random", "--rounds", "60", "--seeds", "3")


@pytest.mark.slow
def test_leaderboard_continues_from_saved_slices(tmp_path: Path) -> None:
    done = halfseen_command(*BOARD, "--jobs", "2", "--markdown", "docs/board.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "playing 3 agents × 2 worlds × 3 seeds × 60 rounds"
    out = tmp_path / "results" / "leaderboard"
    names = ["leaderboard.html", "leaderboard.json", "leaderboard.md"]
    assert sorted(path.name for path in out.iterdir()) == ["cells", *names]
    assert all(name in done.stdout for name in [*names, "docs/board.md", "keyhole", "switch at=30", "kf-ts", "ts-pco"])
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = (tmp_path / "docs" / "board.md").read_text()
    assert "halfseen leaderboard --rounds 60 --seeds 3 --agents ts-pco,random --worlds keyhole,switch:at=30" in page
    assert " --markdown docs/board.md\n" in page
    first = json.loads((out / "leaderboard.json").read_text())
    for path in list((out / "cells").iterdir())[:2]:
        path.unlink()
    again = halfseen_command(*BOARD, "--jobs", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "resuming: 4 of 6 slices done" in again.stderr.splitlines()
    second = json.loads((out / "leaderboard.json").read_text())
    for world, content in first["worlds"].items():
        for agent, entry in content["agents"].items():
            assert second["worlds"][world]["agents"][agent]["regret_by_seed"] == entry["regret_by_seed"]
    fresh = halfseen_command(*BOARD, "--jobs", "1", "--fresh", cwd=tmp_path)
    assert fresh.returncode == 0, fresh.stderr
    assert "resuming" not in fresh.stderr


def test_leaderboard_reports_failures(tmp_path: Path) -> None:
    done = halfseen_command(
        *("leaderboard", "--worlds", "keyhole,fog", "--agents", "emkf-ts:window=3,random", "--rounds", "40"),
        *("--seeds", "2", "--jobs", "1", "--out", "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\nfailed: emkf-ts:window=3 in ") == 2
    line = "failed: emkf-ts:window=3 in fog (seeds 0 to 1): InvalidInput: window: expected an integer of at least 50, "
    assert f"{line}got 3" in done.stderr
    assert "failed" in done.stdout
    record = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert record["worlds"]["fog"]["agents"]["random"]["ratio"]["value"] > 1
    assert [failure["world"] for failure in record["failures"]] == ["keyhole", "fog"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_interrupted_leaderboard_keeps_finished_slices(tmp_path: Path, jobs: str) -> None:
    slow = ("leaderboard", "--worlds", "keyhole", "--agents", "random", "--rounds", "2000", "--seeds", "4000")
    process = start_command(*slow, "--jobs", jobs, "--out", "out", cwd=tmp_path)
    deadline = time.monotonic() + 60.0
    while len(list((tmp_path / "out" / "cells").glob("*.slice"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    last = interrupt(process)[-1]
    saved = len(list((tmp_path / "out" / "cells").glob("*.slice")))
    assert last.startswith("Interrupted. ")
    assert last.endswith(" of 800 slices are saved in out. To continue, run the same command.")
    assert saved - int(last.split()[1]) in (0, 1)  # a slice may have been written but not counted yet
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cells"]


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from halfseen.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: the command line needs the package 'typer', which is not installed; "
        "install it with: pip install 'halfseen[experiments]'"
    ]


def test_importing_is_cheap() -> None:
    code = "import sys, halfseen.cli.app; sys.exit(any(name in sys.modules for name in ('numpy', 'typer', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0


def test_the_list_of_commands_loads_no_numpy() -> None:
    code = "import sys; from halfseen.cli.app import build_app; build_app(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0


def test_lists_of_agents_and_worlds() -> None:
    from halfseen.agents.catalogue import CATALOG
    from halfseen.worlds.named import NAMED, RECORDED

    runner = testing.CliRunner(env={"COLUMNS": "120"})
    agents = runner.invoke(build_app(), ["agents"])
    assert agents.exit_code == 0
    assert all(name in agents.stdout for name in CATALOG)
    worlds = runner.invoke(build_app(), ["worlds"])
    assert worlds.exit_code == 0
    assert all(name in worlds.stdout for name in [*NAMED, *RECORDED])
    version = runner.invoke(build_app(), ["--version"])
    assert version.exit_code == 0
    assert version.stdout.startswith("halfseen ")


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([]) == 0
    out, err = capsys.readouterr()
    assert all(command in out for command in ("reproduce", "run", "leaderboard", "agents", "worlds"))
    assert err == ""


@pytest.mark.parametrize(
    ("given", "specs"),
    [
        (["kf-ts,ts-pco"], ["kf-ts", "ts-pco"]),
        (["kf-ts , ts-pco:width=0.5 ,"], ["kf-ts", "ts-pco:width=0.5"]),
        (["a:x=1,y=2,b,c:z=3"], ["a:x=1,y=2", "b", "c:z=3"]),
        (["a:x=1", "b:y=2,z=t:u"], ["a:x=1", "b:y=2,z=t:u"]),
        (["a:control=[0,0.1],x=1,b"], ["a:control=[0,0.1],x=1", "b"]),
    ],
)
def test_split_specs(given: list[str], specs: list[str]) -> None:
    assert split_specs(given) == specs


def test_split_numbers() -> None:
    assert split_numbers("noise", ["0.01, 1", "2e-3"]) == [0.01, 1.0, 0.002]
    with pytest.raises(HalfseenError, match=r"^noise: expected numbers separated by commas, got ''$"):
        split_numbers("noise", ["1,,2"])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGKILL, -9)]
)
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = start_command(
        *("reproduce", "--rounds", "1000000", "--seeds", "2", "--jobs", "2", "--out", "out"), cwd=tmp_path
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("playing")
    deadline = time.monotonic() + 60.0
    while len(alive_in_session(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert_session_ended(process.pid, seconds=10.0)
    assert list(tmp_path.iterdir()) == []


def test_first_seed(tmp_path: Path) -> None:
    small = ("--rounds", "60", "--seeds", "2", "--jobs", "1")
    for command, first in (
        (("run", "fog", "--agents", "ts-pco", *small, "--first-seed", "7", "--out", "a"), 7),
        (("reproduce", "--no-map", "--agents", "ts-pco", *small, "--first-seed", "5", "--out", "b"), 5),
    ):
        done = halfseen_command(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / command[-1] / "summary.json").read_text())
        assert summary["seeds"] == [first, first + 1]
    assert "--first-seed 5" in (tmp_path / "b" / "report.html").read_text()


@pytest.mark.parametrize("words", [[], ["warmup"], ["serve"], ["token"], ["token", "create"]])
def test_help_shows_no_type_for_flags(words, capsys):
    assert run_app([*words, "--help"]) == 0
    shown = capsys.readouterr().out.lower()
    assert "--help" in shown
    assert "bool" not in shown
    assert words != ["warmup"] or re.search(r"--jobs\s+<?int", shown)  # options with a value still show its type
