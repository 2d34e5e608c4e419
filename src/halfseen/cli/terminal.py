"""What the command line shows in a terminal: progress, tables, verdicts."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halfseen.reports.tables import Table

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from halfseen.evaluation.evaluate import Evaluation
    from halfseen.experiments.claims import Claim
    from halfseen.experiments.examine import Examination
    from halfseen.experiments.leaderboard import Leaderboard, Progress
    from halfseen.experiments.result import Result

_NAME_WIDTH = 20  # a longer name may wrap before a column is left out
_LEAST_WORTH = (
    "rounds/s",
    "µs/round",
    "mean ‖x−x̂‖",
    "median",
    "95 % interval",
)  # columns left out first where the terminal is narrow
_LEAST_WORTH_ON_BOARD = ("wall s", "of medians", "median", "before", "after", "worst seed", "µs/round")
_LEAST_WORTH_OF_POLICIES = ("look", "largest weight")  # what they tell, the notes below tell too
_SAY_EVERY = 30.0  # seconds between two lines of progress where there is no terminal to draw a bar in


class ProgressBar(NamedTuple):
    """Functions that update a bar, with stream-rounds done and in all, and that print a line beside it."""

    update: Callable[[int, int], None]
    say: Callable[[str], None]


@contextmanager
def progress(size: str, doing: str = "playing") -> Iterator[ProgressBar]:
    """A bar on stderr with the time left and the speed, or two plain lines where stderr is no terminal."""
    from rich.progress import ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rounds/s" if task.speed else "")

    bar, say = _bar(TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn(), Speed())
    task = bar.add_task(doing, total=None)
    began = time.perf_counter()
    first = True

    def update(done: int, total: int) -> None:
        nonlocal first
        begin()
        if done and first:  # what an earlier run has done is no measure of speed
            bar.reset(task, completed=done, total=total)
        elif done:
            bar.update(task, completed=done, total=total)
        first = first and not done

    def say_beside(line: str) -> None:
        begin()
        say(line)

    begin = _once(say, f"{doing} {size}")
    with bar:
        yield ProgressBar(update, say_beside)
    begin()
    say(f"done in {time.perf_counter() - began:.1f} s")


@contextmanager
def slice_progress(size: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr with the slices done and the time left; a line now and then where stderr is no terminal."""
    from rich.progress import TextColumn

    bar, say = _bar(TextColumn("{task.fields[where]}"))
    task = bar.add_task("playing", total=None, where="")
    began = last_said = time.perf_counter()

    def update(now: Progress) -> None:
        nonlocal last_said
        begin()
        left = "" if now.seconds_left is None else f", {duration(now.seconds_left)} left"
        bar.update(task, completed=now.done, total=now.total, where=f"{now.done} of {now.total} cells{left}")
        if now.done == now.resumed and now.resumed:
            say(f"resuming: {now.done} of {now.total} cells done")
        if now.done == now.resumed and now.others:
            say(f"{now.others} cells in the folder are of other settings or other code; --fresh discards them")
        if bar.disable and time.perf_counter() - last_said > _SAY_EVERY:
            last_said = time.perf_counter()
            say(f"{now.done} of {now.total} cells done{left}")

    begin = _once(say, f"playing {size}")
    with bar:
        yield update
    begin()
    say(f"done in {duration(time.perf_counter() - began)}")


@contextmanager
def kernel_progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with the kernels compiled, or a plain line where stderr is no terminal."""
    from rich.progress import TextColumn, TimeElapsedColumn

    bar, say = _bar(TextColumn("{task.completed:.0f} of {task.total:.0f} kernels"), TimeElapsedColumn())
    task = bar.add_task("compiling", total=1)
    say("compiling all numerical kernels, once for this installation")
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _once(say: Callable[[str], None], line: str) -> Callable[[], None]:
    """Says the line when it is first called: not before it is known that there will be something to play with."""
    waiting = [line]
    return lambda: say(waiting.pop()) if waiting else None


def _bar(*columns: ProgressColumn) -> tuple[Bar, Callable[[str], None]]:
    """A bar on stderr that ends in `columns`, not drawn where that is no terminal; and how to say a line beside it."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    start = (TextColumn("{task.description}"), BarColumn(bar_width=None))
    bar = Bar(*start, *columns, console=console, disable=not console.is_terminal, transient=True)
    return bar, lambda line: console.print(line, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """A time in its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def print_leaderboard(board: Leaderboard) -> None:
    """Print a table for every world, and last a table of all worlds."""
    for world in board.worlds:
        print_table(board.table(world), world, least_worth=_LEAST_WORTH_ON_BOARD, numeric=True)
    print_table(board.matrix(), "R(T) as a multiple of kf-ts's", numeric=True)


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


def print_findings(examination: Examination) -> None:
    """Print the table, and then what each finding means, the worst findings first."""
    print_table(examination.table(), examination.title)
    order = list(reversed(type(examination.findings[0].verdict)))
    for finding in sorted(examination.findings, key=lambda one: order.index(one.verdict)):
        _print_note({"fine": " ", "look": "?", "bad": "!"}[finding.verdict], finding.sentence)


def print_evaluation(found: Evaluation) -> None:
    """Print the table, and then the reasons for doubt."""
    print_table(found.table(), "Reward a round", least_worth=_LEAST_WORTH_OF_POLICIES, numeric=True)
    for line in found.warnings:
        _print_note("!", line)


def _print_note(mark: str, text: str) -> None:
    """A sentence after its mark, as wide as the terminal."""
    from rich.console import Console

    print(textwrap.fill(text, Console().width, initial_indent=f"{mark} ", subsequent_indent="  "))


def print_written(paths: Sequence[Path]) -> None:
    print("\nwritten:")
    for path in paths:
        print(f"  {path}")


def print_table(table: Table, title: str, *, least_worth: Sequence[str] = (), numeric: bool = False) -> None:
    """A table as wide as the terminal allows: columns of least worth go first, then text wraps; numbers never do.

    A table of numbers that is still too wide is continued below, with the names again.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    lengths = {column: max(cell_len(row[column]) for row in table.rows) for column in table.columns}
    lengths[table.columns[0]] = min(lengths[table.columns[0]], _NAME_WIDTH)
    heads = {column: [column] for column in table.columns}

    padding = 1

    def width(column: str) -> int:
        return max(lengths[column], *map(cell_len, heads[column])) + 1 + 2 * padding

    def fits(columns: Iterable[str]) -> bool:
        return 1 + sum(map(width, columns)) <= console.width

    def too_wide() -> bool:
        return not fits(heads)

    if numeric and too_wide():
        heads = {column: _over_lines(column, lengths[column]) for column in heads}
    for column in least_worth:
        if too_wide():
            heads.pop(column, None)
    if numeric and too_wide():
        padding = 0
    first, *others = heads
    parts: list[list[str]] = [[first]]
    for column in others:  # in as many parts as it takes, each with the names
        if numeric and len(parts[-1]) > 1 and not fits([*parts[-1], column]):
            parts.append([first])
        parts[-1].append(column)
    for number, part in enumerate(parts):
        view = RichTable(
            title=Text(title if number == 0 else f"{title}, continued"),
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, padding),
        )
        for at, column in enumerate(part):
            is_number, head = numeric and at > 0, "\n".join(heads[column])
            view.add_column(head, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
        for row in table.rows:
            view.add_row(*[_coloured(row[column]) for column in part])
        console.print(view)


def _over_lines(head: str, width: int) -> list[str]:
    """The head of a column broken at spaces and hyphens, to be no wider than what is below it if that can be."""
    longest = max(len(word) for word in re.split(r"(?<=-)| ", head))
    return textwrap.wrap(head, max(width, longest))


def _coloured(text: str) -> Any:
    from rich.text import Text

    return Text(text, style={"holds": "green", "does not hold": "red", "undecided": "yellow"}.get(text, ""))
