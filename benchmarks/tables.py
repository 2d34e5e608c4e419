"""Results as tables: for the terminal, for documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.run import aims
from halfseen.reports.tables import Table


def amount(microseconds: float) -> str:
    """A time in the unit that suits it."""
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def times(ratio: float) -> str:
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.1f} ×" if ratio >= 1 else f"{ratio:.2f} ×"


def aim_of(row: Mapping[str, Any]) -> str:
    bounds = (("≥", row["at_least"], "×"), ("≤", row["at_most"], "×"), ("≤", row["at_most_seconds"], "s"))
    return ", ".join(f"{sign} {value:.3g} {unit}" for sign, value, unit in bounds if value is not None)


def job_table(entry: Mapping[str, Any], *, remarks: bool = True) -> Table:
    """A row a contender."""
    rows = []
    for row in entry["contenders"]:
        cells = {
            "contender": row["contender"],
            f"a {entry['unit']}": amount(row["microseconds"]),
            "× ours": times(row["times_ours"]),
            "aim": aim_of(row),
        }
        if entry["flops"]:
            cells["of dgemm"] = f"{100 * row['dgemm_share']:.2g} %"
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
    return f"{entry['title']}: {entry['flops']:,} flops a {entry['unit']}, {limit} in dgemm"


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
    """One line on what the run was made with."""
    machine, sizes = results["machine"], results["sizes"]
    return (
        f"d = {sizes['latent']}, k = {sizes['observed']}, K = {sizes['arms']}; {machine['processor']}, "
        f"{machine['cores']} cores, one thread on one of them; dgemm {results['dgemm_gflops']:.1f} Gflop/s; "
        f"Python {machine['python']}, NumPy {machine['numpy']}, llvmlite {machine['llvmlite']}; load of the machine "
        f"{' to '.join('unknown' if one is None else f'{one:.1f}' for one in machine['load'])}."
    )


def absentees(results: Mapping[str, Any]) -> list[str]:
    """Who did not take part, and why; a line each."""
    lines: dict[str, list[str]] = {}
    for entry in results["jobs"]:
        for line in entry["absent"]:
            lines.setdefault(line, []).append(entry["name"])
    return [f"{line} ({', '.join(names)})" for line, names in lines.items()]


def beside_others(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs that others do as well; the rest compare us with ourselves."""
    return [entry for entry in results["jobs"] if entry["contenders"][0]["contender"] == "halfseen"]


def summary(results: Mapping[str, Any]) -> Table:
    """A row a job that others do as well: our time, and how many times longer they take."""
    rows = []
    for entry in beside_others(results):
        ours, *others = entry["contenders"]
        said = [f"{row['contender']} {times(row['times_ours'])}{' *' if row['differs'] else ''}" for row in others]
        time = f"{amount(ours['microseconds'])} a {entry['unit']}"
        share = f"{100 * ours['dgemm_share']:.2g} %"
        rows.append({"job": entry["title"], "halfseen": time, "of dgemm": share, "others": ", ".join(said)})
    return Table(rows)


def document(results: Mapping[str, Any]) -> str:
    """All of it in Markdown: a table a job, who was absent, the aims."""
    parts = [setting(results)]
    parts += ["Peers: " + ", ".join(f"{name} {version}" for name, version in results["peers"].items()) + "."]
    for entry in results["jobs"]:
        parts += [f"**{heading(entry)}** (`halfseen bench {entry['name']}`)", job_table(entry).markdown()]
    if absent := absentees(results):
        parts += ["Not in the tables:", "\n".join(f"* {line}" for line in absent)]
    if (wanted := aims_table(results)).rows:
        parts += ["**The aims**", wanted.markdown()]
    return "\n\n".join(parts)
