"""What is shown while jobs run: a bar on stderr, or a line a job where that is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness import Told
from benchmarks.run import Starting
from halfseen.cli.terminal import duration


@contextmanager
def job_progress() -> Iterator[Starting]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task("", total=1.0, doing="")
    began = time.perf_counter()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    def starting(name: str, number: int, count: int) -> Told:
        if bar.disable:
            say(f"{name} ({number + 1} of {count})")

        def told(doing: str, share: float) -> None:
            place = f"{name} ({number + 1} of {count})"
            bar.update(task, description=place, doing=doing, completed=(number + share) / count)

        return told

    with bar:
        yield starting
    say(f"done in {duration(time.perf_counter() - began)}")
