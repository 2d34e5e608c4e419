"""What a run leaves behind: tables in the terminal; bench.json, bench.md and bench.png in a folder."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import chart, tables
from benchmarks.run import aims
from halfseen.cli.terminal import print_table
from halfseen.reports.files import staged, write_json


def show(results: Mapping[str, Any]) -> None:
    for entry in results["jobs"]:
        print_table(tables.job_table(entry, remarks=False), tables.heading(entry), numeric=True)
        for row in entry["contenders"]:
            if said := tables.remark(row):
                print(textwrap.fill(f"{row['contender']}: {said}", 100, initial_indent="  ", subsequent_indent="    "))
        print()
    if (wanted := tables.aims_table(results)).rows:
        print_table(wanted, "The aims")
    print(tables.setting(results))
    for line in tables.absentees(results):
        print(f"not run: {line}")


def save(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """The files written, all of them or none."""
    with staged(folder) as stage:
        write_json(stage / "bench.json", {**results, "aims": aims(results)})
        (stage / "bench.md").write_text(tables.document(results) + "\n")
        chart.draw(results, stage / "bench.png")
        names = sorted(path.name for path in stage.iterdir())
    return [folder / name for name in names]
