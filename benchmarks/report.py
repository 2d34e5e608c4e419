"""Shows the results of a run in the terminal, saves them, and writes them into docs/performance.md.

    python -m benchmarks.report                 # writes the results in results/bench into docs/performance.md
    python -m benchmarks.report other/folder

The tables are written between the markers of docs/performance.md. The chart is copied to docs/figures/bench.png.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfseen.cli.terminal import print_table
from halfseen.errors import HalfseenError
from halfseen.reports.files import staged, write_json
from halfseen.reports.tables import Table, wrap_prose

ROOT = Path(__file__).resolve().parents[1]
OURS, THEIRS, BASELINE = "#c2410c", "#64748b", "#cbd5e1"
_COLUMNS = 2


def aims(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all aims of the jobs that were run, with the measured values and whether each aim is met."""
    found = []
    for entry in results["jobs"]:
        rows = entry["contenders"]
        for row in rows:
            ratio, seconds = row["times_ours"], row["microseconds"] / 1e6
            if row["at_least"] is not None:
                found.append(_aim(entry, row, f"≥ {row['at_least']:g} ×", f"{ratio:.3g} ×", ratio >= row["at_least"]))
            if row["at_most"] is not None:
                found.append(_aim(entry, row, f"≤ {row['at_most']:g} ×", f"{ratio:.2g} ×", ratio <= row["at_most"]))
            if (limit := row["at_most_seconds"]) is not None:
                found.append(_aim(entry, row, f"≤ {limit:.3g} s", f"{seconds:.3g} s", seconds <= limit))
        if (limit := entry["flop_limit"]) is not None:
            times = 1.0 / rows[0]["dgemm_share"]
            aim = f"≤ {limit:g} × the flop limit"
            found.append(_aim(entry, rows[0], aim, f"{times:.1f} ×", times <= limit))
    return found


def _aim(entry: Mapping[str, Any], row: Mapping[str, Any], aim: str, measured: str, met: bool) -> dict[str, Any]:
    return {"job": entry["name"], "contender": row["contender"], "aim": aim, "measured": measured, "met": met}


def amount(microseconds: float) -> str:
    """Format a time with a suitable unit."""
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def multiple(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.1f} ×" if ratio >= 1 else f"{ratio:.2f} ×"


def aim_of(row: Mapping[str, Any]) -> str:
    bounds = (("≥", row["at_least"], "×"), ("≤", row["at_most"], "×"), ("≤", row["at_most_seconds"], "s"))
    return ", ".join(f"{sign} {value:.3g} {unit}" for sign, value, unit in bounds if value is not None)


def job_table(entry: Mapping[str, Any], *, remarks: bool = True) -> Table:
    """Return the times of a job with one row per contender."""
    rows = []
    for row in entry["contenders"]:
        cells = {
            "contender": row["contender"],
            f"per {entry['unit']}": amount(row["microseconds"]),
            "ratio": multiple(row["times_ours"]),
            "aim": aim_of(row),
        }
        if entry["flops"]:
            cells["share of dgemm"] = f"{100 * row['dgemm_share']:.2g} %"
        if remarks:
            cells["remarks"] = remark(row)
        rows.append(cells)
    return Table(rows)


def remark(row: Mapping[str, Any]) -> str:
    return "; ".join(part for part in (row["note"], row["differs"]) if part)


def heading(entry: Mapping[str, Any]) -> str:
    if not entry["flops"]:
        return entry["title"]
    limit = amount(entry["limit_microseconds"])
    return f"{entry['title']}: {entry['flops']:,} flops per {entry['unit']}, which take {limit} at the rate of dgemm"


def aims_table(results: Mapping[str, Any]) -> Table:
    return Table(
        [
            {
                "job": one["job"],
                "contender": one["contender"],
                "aim": one["aim"],
                "measured": one["measured"],
                "": "met" if one["met"] else "missed",
            }
            for one in aims(results)
        ]
    )


def setting(results: Mapping[str, Any]) -> str:
    """Return a line about the sizes, the machine and the versions of the run."""
    machine, sizes = results["machine"], results["sizes"]
    return (
        f"d = {sizes['latent']}, k = {sizes['observed']}, K = {sizes['arms']}; {machine['processor']}, "
        f"{machine['cores']} cores, one thread; dgemm {results['dgemm_gflops']:.1f} Gflop/s; "
        f"Python {machine['python']}, NumPy {machine['numpy']}, Numba {machine['numba']}; load average "
        f"{' to '.join('unknown' if one is None else f'{one:.1f}' for one in machine['load'])}."
    )


def absentees(results: Mapping[str, Any]) -> list[str]:
    """Return one line per library that was not measured, with the reason."""
    lines: dict[str, list[str]] = {}
    for entry in results["jobs"]:
        for line in entry["absent"]:
            lines.setdefault(line, []).append(entry["name"])
    return [f"{line} ({', '.join(names)})" for line, names in lines.items()]


def jobs_with_others(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs in which halfseen is compared with others. The remaining jobs compare parts of halfseen."""
    return [entry for entry in results["jobs"] if entry["contenders"][0]["contender"] == "halfseen"]


def summary(results: Mapping[str, Any]) -> Table:
    """Return the time of halfseen and the ratios of the other contenders, with one row per job."""
    rows = []
    for entry in jobs_with_others(results):
        ours, *others = entry["contenders"]
        ratios = [f"{row['contender']} {multiple(row['times_ours'])}{' *' if row['differs'] else ''}" for row in others]
        rows.append(
            {
                "job": entry["title"],
                "halfseen": f"{amount(ours['microseconds'])} per {entry['unit']}",
                "share of dgemm": f"{100 * ours['dgemm_share']:.2g} %",
                "others (ratio)": ", ".join(ratios),
            }
        )
    return Table(rows)


def markdown(results: Mapping[str, Any]) -> str:
    """Return a summary, one table per job, the libraries that were not measured, and the aims in Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in results["peers"].items())
    parts = [wrap_prose(setting(results)), summary(results).markdown(), wrap_prose(f"Versions: {versions}.")]
    for entry in results["jobs"]:
        parts += [wrap_prose(f"**{heading(entry)}** (`halfseen bench {entry['name']}`)"), job_table(entry).markdown()]
    if absent := absentees(results):
        parts += ["Not in the tables:", wrap_prose("\n".join(f"* {line}" for line in absent))]
    if (wanted := aims_table(results)).rows:
        parts += ["**Aims**", wanted.markdown()]
    return "\n\n".join(parts)


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw one panel per job that compares halfseen with others. A mark shows the aim for the contender's time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    jobs = jobs_with_others(results)
    if not jobs:
        return
    columns = min(_COLUMNS, len(jobs))
    rows = [jobs[start : start + columns] for start in range(0, len(jobs), columns)]
    heights = [max(len(entry["contenders"]) for entry in row) + 1.6 for row in rows]
    figure, grid = plt.subplots(
        len(rows),
        columns,
        figsize=(7.2 * columns, 0.34 * sum(heights) + 0.5),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axes in grid.flat[len(jobs) :]:
        axes.set_visible(False)
    for entry, axes in zip(jobs, grid.flat, strict=False):
        _panel(axes, entry)
    sizes = results["sizes"]
    figure.suptitle(
        f"Time per unit, log scale; d = {sizes['latent']}, k = {sizes['observed']}, K = {sizes['arms']}, 1 thread. "
        "Marks: aims. *: a different computation.",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _panel(axes: Any, entry: Mapping[str, Any]) -> None:
    rows = entry["contenders"]
    ours = rows[0]["microseconds"]
    names = [row["contender"] + (" *" if row["differs"] else "") for row in rows]
    values = [row["microseconds"] for row in rows]
    low = min(values) / 4
    kinds = {"NumPy": BASELINE, "halfseen": OURS}
    colours = [next((kinds[kind] for kind in kinds if name.startswith(kind)), THEIRS) for name in names]
    positions = range(len(rows))
    axes.barh(positions, [value - low for value in values], left=low, color=colours, height=0.7)
    for position, row in zip(positions, rows, strict=True):
        label = amount(row["microseconds"]) if position == 0 else multiple(row["times_ours"])
        end = row["microseconds"]
        if row["at_least"] is not None:
            mark = row["at_least"] * ours
            axes.plot([mark] * 2, [position - 0.45, position + 0.45], color="black", linewidth=1.4)
            end = mark if end < mark < 2 * end else end  # so that the label does not cover the mark
        axes.text(end * 1.08, position, label, va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(low, max([*values, *(row["at_least"] * ours for row in rows if row["at_least"])]) * 4)
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(positions, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_title(f"{entry['title']}, µs per {entry['unit']}", fontsize=9, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def show(results: Mapping[str, Any]) -> None:
    for entry in results["jobs"]:
        print_table(job_table(entry, remarks=False), heading(entry), numeric=True)
        for row in entry["contenders"]:
            if text := remark(row):
                print(textwrap.fill(f"{row['contender']}: {text}", 100, initial_indent="  ", subsequent_indent="    "))
        print()
    if (wanted := aims_table(results)).rows:
        print_table(wanted, "Aims")
    print(setting(results))
    for line in absentees(results):
        print(f"not measured: {line}")


def save(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write bench.json, bench.md and bench.png, and return their paths."""
    with staged(folder) as stage:
        write_json(stage / "bench.json", {**results, "aims": aims(results)})
        (stage / "bench.md").write_text(markdown(results) + "\n")
        draw(results, stage / "bench.png")
        names = sorted(path.name for path in stage.iterdir())
    return [folder / name for name in names]


def markers(subject: str) -> tuple[str, str]:
    """Return the begin and end markers. They are link definitions, which are not visible on the rendered page."""
    return f"[{subject}: begin]: #", f"[{subject}: end]: #"


def between_markers(text: str, content: str, name: str, *, subject: str = "bench") -> str:
    """Return `text` with the content between the markers of a subject replaced."""
    begin, end = markers(subject)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise HalfseenError(f"{name}: expected one '{begin}' followed by one '{end}', got no such pair")
    before, _, after = text.partition(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{after.partition(end)[2]}"


def write_documents(folder: Path, root: Path = ROOT) -> None:
    source = folder / "bench.json"
    if not source.is_file():
        raise HalfseenError(f"folder: expected a folder with the bench.json of a `halfseen bench` run, got '{folder}'")
    results = json.loads(source.read_text())
    if results["quick"]:
        raise HalfseenError(f"folder: expected the results of a full run, got '{folder}' from a run with --quick")
    page = root / "docs/performance.md"
    page.write_text(between_markers(page.read_text(), markdown(results), "docs/performance.md"))
    shutil.copyfile(folder / "bench.png", root / "docs/figures/bench.png")


def main() -> None:
    try:
        write_documents(Path(sys.argv[1] if len(sys.argv) > 1 else "results/bench"))
    except HalfseenError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
