"""Terminal output of the command line: progress bars, tables and verdicts."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halfseen.reports.tables import GROWTH_NOTE, Table

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from halfseen.evaluation.evaluate import Evaluation
    from halfseen.experiments.claims import Claim
    from halfseen.experiments.examine import Examination
    from halfseen.experiments.leaderboard import Leaderboard
    from halfseen.experiments.result import Result
    from halfseen.experiments.slice_schedule import Progress
    from halfseen.experiments.study import Study

_NAME_WIDTH = 20  # names in the first column wrap to this width before other columns are left out
# Columns that are left out, in this order, if the terminal is too narrow.
_OPTIONAL_RESULT_COLUMNS = ("rounds/s", "µs/round", "mean ‖x−x̂‖", "median", "95 % interval")
_OPTIONAL_LEADERBOARD_COLUMNS = ("wall s", "of medians", "median", "before", "after", "worst seed", "µs/round")
_OPTIONAL_POLICY_COLUMNS = ("see notes", "largest weight")  # the notes below the table repeat their content
_LINE_SECONDS = 30.0  # time between two lines of progress if stderr is not a terminal


class ProgressBar(NamedTuple):
    """The functions of a progress bar."""

    update: Callable[[int, int], None]  # called with the number of rounds played in all streams, and the total
    print_line: Callable[[str], None]  # prints a line above the bar


@contextmanager
def progress(size: str, doing: str = "playing") -> Iterator[ProgressBar]:
    """Show a bar on stderr with the remaining time and the speed, or two lines if stderr is not a terminal."""
    from rich.progress import ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rounds/s" if task.speed else "")

    bar, print_line = _bar(TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn(), Speed())
    task = bar.add_task(doing, total=None)
    began = time.perf_counter()
    first = True

    def update(done: int, total: int) -> None:
        nonlocal first
        print_start()
        if done and first:  # the rounds of an earlier run do not count towards the speed
            bar.reset(task, completed=done, total=total)
        elif done:
            bar.update(task, completed=done, total=total)
        first = first and not done

    def print_after_start(line: str) -> None:
        print_start()
        print_line(line)

    print_start = _once(print_line, f"{doing} {size}")
    with bar:
        yield ProgressBar(update, print_after_start)
    print_start()
    print_line(f"done in {time.perf_counter() - began:.1f} s")


@contextmanager
def slice_progress(size: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar on stderr with the slices done and the time left, or print lines if stderr is not a terminal."""
    from rich.progress import TextColumn

    bar, print_line = _bar(TextColumn("{task.fields[status]}"))
    task = bar.add_task("playing", total=None, status="")
    began = last_line = time.perf_counter()

    def update(now: Progress) -> None:
        nonlocal last_line
        print_start()
        left = "" if now.seconds_left is None else f", {duration(now.seconds_left)} left"
        bar.update(task, completed=now.done, total=now.total, status=f"{now.done} of {now.total} slices{left}")
        if now.done == now.resumed and now.resumed:
            print_line(f"resuming: {now.done} of {now.total} slices done")
        if now.done == now.resumed and now.others:
            print_line(f"slices in the folder from other settings or other code: {now.others} (--fresh discards them)")
        if bar.disable and time.perf_counter() - last_line > _LINE_SECONDS:
            last_line = time.perf_counter()
            print_line(f"{now.done} of {now.total} slices done{left}")

    print_start = _once(print_line, f"playing {size}")
    with bar:
        yield update
    print_start()
    print_line(f"done in {duration(time.perf_counter() - began)}")


@contextmanager
def kernel_progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr with the number of compiled kernels, or one line if stderr is not a terminal."""
    from rich.progress import TextColumn, TimeElapsedColumn

    bar, print_line = _bar(TextColumn("{task.completed:.0f} of {task.total:.0f} kernels"), TimeElapsedColumn())
    task = bar.add_task("compiling", total=1)
    print_line("compiling all numerical kernels, which is needed once per installation")
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _once(print_line: Callable[[str], None], line: str) -> Callable[[], None]:
    """Return a function that prints the line only on its first call."""
    lines = [line]
    return lambda: print_line(lines.pop()) if lines else None


def _bar(*columns: ProgressColumn) -> tuple[Bar, Callable[[str], None]]:
    """Return a bar on stderr that ends with `columns`, and a function that prints a line above it.

    The bar is not drawn if stderr is not a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    start = (TextColumn("{task.description}"), BarColumn(bar_width=None))
    bar = Bar(*start, *columns, console=console, disable=not console.is_terminal, transient=True)
    return bar, lambda line: console.print(line, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def print_leaderboard(board: Leaderboard) -> None:
    """Print one table per world, followed by a table of all worlds."""
    for world in board.worlds:
        print_table(board.table(world), world, optional=_OPTIONAL_LEADERBOARD_COLUMNS, numeric=True)
    print_table(board.matrix(), "R(T) divided by the R(T) of kf-ts", numeric=True)


def print_results(result: Result) -> None:
    rows = result.table().rows
    for world in result.worlds:
        own = [{k: v for k, v in row.items() if k != "world"} for row in rows if row["world"] == world]
        print_table(Table(own), world, optional=_OPTIONAL_RESULT_COLUMNS, numeric=True)
    if result.plan.grid:
        print_table(result.grid_table(), "Options", numeric=False)
    if not result.recorded:
        _print_note("", GROWTH_NOTE)


def print_claims(claims: Sequence[Claim]) -> None:
    """Print the verdicts, with one row per claim and world."""
    rows = [
        {"claim": "" if number else claim.title, "world": world, "verdict": str(verdict)}
        for claim in claims
        for number, (world, verdict) in enumerate(claim.verdicts.items())
    ]
    print_table(Table(rows), "The paper's claims")


def print_map(summary: Mapping[str, Any]) -> None:
    """Print where every claim holds, with one sentence per claim and initialisation of EMKF."""
    print(f"Where the claims hold at T = {summary['rounds']:,}\n")
    titles: set[str] = set()
    for panel in summary["panels"]:
        if panel["title"] not in titles:
            titles.add(panel["title"])
            print(panel["title"])
        _print_note(" ", panel["statement"])
    print()


def print_findings(examination: Examination) -> None:
    """Print the answer, the table, one sentence per finding (the worst first), and the meaning of the terms."""
    from halfseen.diagnostics.health import terms

    _print_note("", examination.answer)
    print()
    print_table(examination.table(), examination.title)
    order = list(reversed(type(examination.findings[0].verdict)))
    for finding in sorted(examination.findings, key=lambda one: order.index(one.verdict)):
        _print_note({"fine": "  ", "look": "? ", "bad": "! "}[finding.verdict], finding.sentence)
    print("\nTerms:")
    for term, meaning in terms(examination.findings).items():
        _print_note("  ", f"{term}: {meaning}", hang=2)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the table, the lifts and the warnings."""
    print_table(evaluation.table(), "Reward per round", optional=_OPTIONAL_POLICY_COLUMNS, numeric=True)
    for lift in evaluation.lifts:
        _print_note("- ", f"lift over {lift.baseline}: {lift.shown}, {lift.sentence}")
    for line in evaluation.warnings:
        _print_note("! ", line)


def print_study(study: Study) -> None:
    """Print the four answers, the table of policies with its notes, facts about the log, and the meaning of terms."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    _print_note("", study.heading)
    print()
    for question, answer in study.answers.items():
        console.print(Text(question, style="bold"))
        _print_note("  ", answer)
        print()
    print_table(study.table(), "Reward per decision", optional=_OPTIONAL_POLICY_COLUMNS, numeric=True)
    for line in study.notes:
        _print_note("! ", line)
    if study.facts:
        print("\nFacts:")
    for line in study.facts:
        _print_note("- ", line)
    print("\nTerms:")
    for term, meaning in study.terms.items():
        _print_note("  ", f"{term}: {meaning}", hang=2)


def _print_note(mark: str, text: str, hang: int = 0) -> None:
    """Print a mark and a sentence, wrapped to the width of the terminal."""
    from rich.console import Console

    from halfseen.diagnostics.health import printed

    print(printed(mark, text, Console().width, hang))


def print_written(paths: Sequence[Path]) -> None:
    print("\nwritten:")
    for path in paths:
        print(f"  {path}")


def print_table(table: Table, title: str, *, optional: Sequence[str] = (), numeric: bool = False) -> None:
    """Print a table within the width of the terminal.

    If the table is too wide, the `optional` columns are left out one by one, and then text wraps. Numbers never wrap.
    A numeric table that is still too wide is split into several tables, which all start with the first column.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    lengths = {column: max(cell_len(row[column]) for row in table.rows) for column in table.columns}
    lengths[table.columns[0]] = min(lengths[table.columns[0]], _NAME_WIDTH)
    headings = {column: [column] for column in table.columns}

    padding = 1

    def width(column: str) -> int:
        return max(lengths[column], *map(cell_len, headings[column])) + 1 + 2 * padding

    def fits(columns: Iterable[str]) -> bool:
        return 1 + sum(map(width, columns)) <= console.width

    def too_wide() -> bool:
        return not fits(headings)

    if numeric and too_wide():
        headings = {column: _wrap_heading(column, lengths[column]) for column in headings}
    for column in optional:
        if too_wide():
            headings.pop(column, None)
    if numeric and too_wide():
        padding = 0
    first, *others = headings
    parts: list[list[str]] = [[first]]
    for column in others:
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
        for position, column in enumerate(part):
            is_number, heading = numeric and position > 0, "\n".join(headings[column])
            view.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
        for row in table.rows:
            view.add_row(*[_coloured(row[column]) for column in part])
        console.print(view)


def _wrap_heading(heading: str, width: int) -> list[str]:
    """Wrap a heading at spaces and hyphens to the width of its column, or to its longest word if that is wider."""
    longest = max(len(word) for word in re.split(r"(?<=-)| ", heading))
    return textwrap.wrap(heading, max(width, longest))


def _coloured(text: str) -> Any:
    from rich.text import Text

    return Text(text, style={"holds": "green", "does not hold": "red", "undecided": "yellow"}.get(text, ""))
