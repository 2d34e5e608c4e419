"""What the command line shows in a terminal: progress, tables, verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfseen.table import Table

if TYPE_CHECKING:
    from halfseen.experiments.claims import Claim
    from halfseen.experiments.result import Result

_NAME_WIDTH = 20  # a longer name may wrap before a column is left out
_LEAST_WORTH = ("rounds/s", "mean ‖x−x̂‖", "median")  # columns left out first where the terminal is narrow


@contextmanager
def progress(size: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with the time left and the speed, or two plain lines where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rounds/s" if task.speed else "")

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        Speed(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("playing", total=None)
    began = time.perf_counter()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    def told(done: int, total: int) -> None:
        if done:
            bar.update(task, completed=done, total=total)

    say(f"playing {size}")
    with bar:
        yield told
    say(f"done in {time.perf_counter() - began:.1f} s")


def print_results(result: Result) -> None:
    rows = result.table().rows
    for world in result.worlds:
        own = [{k: v for k, v in row.items() if k != "world"} for row in rows if row["world"] == world]
        print_table(Table(own), world, least_worth=_LEAST_WORTH, numeric=True)


def print_claims(claims: Sequence[Claim]) -> None:
    rows = [
        {"claim": claim.title, "paper's setting": claim.verdict, "beside it": claim.verdict_elsewhere}
        for claim in claims
    ]
    print_table(Table([{name: str(cell) for name, cell in row.items()} for row in rows]), "The paper's claims")


def print_written(paths: Sequence[Path]) -> None:
    print("\nwritten:")
    for path in paths:
        print(f"  {path}")


def print_table(table: Table, title: str, *, least_worth: Sequence[str] = (), numeric: bool = False) -> None:
    """A table as wide as the terminal allows: columns of least worth go first, then text wraps; numbers never do."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    widths: dict[str, int] = {
        column: max(cell_len(text) for text in [column, *[row[column] for row in table.rows]])
        for column in table.columns
    }
    first = table.columns[0]
    widths[first] = min(widths[first], _NAME_WIDTH)
    for column in least_worth:
        if sum(widths.values()) + 3 * len(widths) <= console.width:
            break
        widths.pop(column, None)
    view = RichTable(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, column in enumerate(widths):
        is_number = numeric and at > 0
        view.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in table.rows:
        view.add_row(*[_coloured(row[column]) for column in widths])
    console.print(view)


def _coloured(text: str) -> Any:
    from rich.text import Text

    return Text(text, style={"holds": "green", "does not hold": "red", "undecided": "yellow"}.get(text, ""))
