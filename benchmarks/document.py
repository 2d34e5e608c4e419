"""Write the results of a run into the documents, between their markers.

    python -m benchmarks.document                 # from results/bench
    python -m benchmarks.document other/folder

docs/performance.md gets every table, README.md a row a job, docs/figures/bench.png the chart.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks import tables
from halfseen.errors import HalfseenError

ROOT = Path(__file__).resolve().parents[1]


def markers(subject: str) -> tuple[str, str]:
    """Link definitions, which no reader of a page sees."""
    return f"[//]: # ({subject}: begin)", f"[//]: # ({subject}: end)"


def between_markers(text: str, content: str, name: str, *, subject: str = "bench") -> str:
    """`text` with what stands between the markers of a subject replaced."""
    begin, end = markers(subject)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise HalfseenError(f"{name}: got no pair of markers; want one '{begin}' and after it one '{end}'")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"


def write(folder: Path, root: Path = ROOT) -> None:
    source = folder / "bench.json"
    if not source.is_file():
        raise HalfseenError(f"folder: got '{folder}'; want one with the bench.json of a run of `halfseen bench`")
    results = json.loads(source.read_text())
    if results["quick"]:
        raise HalfseenError(f"folder: got '{folder}', a run with --quick; want the results of a whole run")
    contents = {"docs/performance.md": tables.document(results), "README.md": tables.summary(results).markdown()}
    pages = {name: between_markers((root / name).read_text(), content, name) for name, content in contents.items()}
    for name, page in pages.items():
        (root / name).write_text(page)
    shutil.copyfile(folder / "bench.png", root / "docs/figures/bench.png")


def main() -> None:
    try:
        write(Path(sys.argv[1] if len(sys.argv) > 1 else "results/bench"))
    except HalfseenError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
