"""Pieces of an HTML page that needs nothing from outside."""

from __future__ import annotations

import base64
import html
import itertools
from collections.abc import Collection, Iterable

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #fbfbfa; --card: #fff;
  --rule: #d8dce0; --holds: #00694d; --fails: #a33c00; --open: #5c5200; --more: rgb(0 0 0 / .22); }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a3abb4; --page: #15181c;
  --card: #1d2126; --rule: #363c44; --holds: #4cc7a2; --fails: #ff9a62; --open: #e3d35c;
  --more: rgb(255 255 255 / .3); } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; border-bottom: 1px solid var(--rule); padding-bottom: .3rem; }
h3 { font-size: 1.08rem; margin: 0 0 .4rem; }
p, li { max-width: 46rem; }
.lead { font-size: 1.08rem; }
.soft { color: var(--soft); }
figure { margin: 1rem 0; }
figure .card { --behind: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: .6rem; }
figure img { display: block; width: 100%; min-width: 38rem; height: auto; mix-blend-mode: multiply; }
figure.narrow img { min-width: 0; max-width: 34rem; margin: 0 auto; }
@media (max-width: 40rem) { figure.tall img { min-width: 0; } }
@media (prefers-color-scheme: dark) { figure img { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; } }
figcaption, caption { color: var(--soft); font-size: .9rem; text-align: left; padding: .4rem 0; }
.scroll { --behind: var(--page); margin: .8rem 0; }
article .scroll { --behind: var(--card); }
/* What scrolls shows a shadow at each side where there is more: covers move with the content, shadows do not. */
.scroll, figure .card { overflow-x: auto; background:
  linear-gradient(to right, var(--behind) 40%, transparent) left / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--behind) 40%, transparent) right / 2rem 100% no-repeat local,
  linear-gradient(to right, var(--more), transparent) left / .8rem 100% no-repeat scroll,
  linear-gradient(to left, var(--more), transparent) right / .8rem 100% no-repeat scroll, var(--behind); }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
td, th { white-space: nowrap; }
td.n, th.n { text-align: right; }
td.t:last-child { white-space: normal; min-width: 9rem; max-width: 34rem; }
th { font-weight: 600; }
tbody th { font-weight: 500; }
tbody + tbody tr:first-child > * { border-top: 2px solid var(--rule); }
article { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 1rem 1.2rem;
  margin: 1rem 0; }
article dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1rem; margin: .4rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
@media (max-width: 40rem) { article { padding: .8rem; } article dl { display: block; } dd { margin: 0 0 .4rem; }
  tbody th { white-space: normal; min-width: 7rem; }
  .stacked, .stacked :is(caption, tbody, tr, th) { display: block; }
  .stacked thead { display: none; }
  .stacked tr { border-bottom: 1px solid var(--rule); padding: .5rem 0; }
  .stacked tbody th { font-weight: 600; overflow-wrap: anywhere; }
  .stacked :is(th, td) { border: 0; padding: .1rem 0; }
  .stacked td, .stacked td.t:last-child { display: flow-root; text-align: right; white-space: normal; max-width: none; }
  .stacked td::before { content: attr(data-label); color: var(--soft); float: left; padding-right: 1rem; }
  .stacked td.t:empty:empty { display: none; } }
.verdict { font-weight: 650; white-space: nowrap; }
.holds { color: var(--holds); } .fails { color: var(--fails); } .undecided { color: var(--open); }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: .7rem 1rem;
  overflow-x: auto; font-size: .88rem; }
"""


class Markup(str):
    """Text that is markup already."""


class Shaded(str):
    """The text of a table's cell with a background: `shade` from −1, blue, over 0, none, to 1, orange."""

    shade: float
    bold: bool

    def __new__(cls, text: str, shade: float, *, bold: bool = False) -> Shaded:
        self = super().__new__(cls, text)
        self.shade, self.bold = max(-1.0, min(1.0, shade)), bold
        return self

    @property
    def style(self) -> str:
        """Half see-through at most, so that the text stays readable on a light page and on a dark one."""
        colour = "0 114 178" if self.shade < 0 else "213 94 0"
        return f"background: rgb({colour} / {abs(self.shade) / 2:.2f})" + ("; font-weight: 700" if self.bold else "")


def escape(text: str) -> str:
    """Text as it may stand in a page or an attribute."""
    return html.escape(str(text), quote=True)


def page(title: str, body: Iterable[str], *, css: str = "") -> str:
    """A whole page under its title; `css` adds to the common style."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join([f"<h1>{escape(title)}</h1>", *body])
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(content) + "\n</section>"


def figure(svg: bytes, caption: str, *, narrow: bool = False, tall: bytes | None = None) -> str:
    """A picture that is `narrow` anyway, or that has a `tall` one in its place on a narrow screen; else it scrolls."""
    size = ' class="narrow"' if narrow else "" if tall is None else ' class="tall"'
    image = f'<img src="{_source(svg)}" alt="{escape(caption)}">'
    if tall is not None:
        image = f'<picture><source media="(max-width: 40rem)" srcset="{_source(tall)}">{image}</picture>'
    return (
        f'<figure{size}><div class="card" tabindex="0">{image}</div><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _source(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def table(
    caption: str,
    columns: list[str],
    rows: list[list[str]],
    *,
    numeric: Collection[int] = (),
    name: str = "",
    stacked: bool = False,
) -> str:
    """A table in a box that scrolls by itself; rows with the same first cell belong together.

    `stacked`, a narrow screen shows the cells of a row below each other, each with the name of its column.
    """

    def cell(at: int, content: str) -> str:
        inner = content if isinstance(content, Markup) else escape(content)
        if at == 0:
            return f'<th scope="row">{inner}</th>'
        style = f' style="{content.style}"' if isinstance(content, Shaded) else ""
        label = f' data-label="{escape(columns[at])}"' if stacked else ""
        return f'<td class="{"n" if at in numeric else "t"}"{label}{style}>{inner}</td>'

    heads = "".join(
        f'<th scope="col" class="{"n" if at in numeric else "t"}">{escape(column)}</th>'
        for at, column in enumerate(columns)
    )
    groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[0])]
    if len(groups) == len(rows):  # nothing belongs together: no lines between groups
        groups = [rows]
    bodies = [
        "<tbody>" + "".join(f"<tr>{''.join(cell(*pair) for pair in enumerate(row))}</tr>" for row in group) + "</tbody>"
        for group in groups
    ]
    kinds = " ".join(filter(None, (name, "stacked" * stacked)))
    kind = f' class="{kinds}"' if kinds else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead>{''.join(bodies)}</table></div>"
    )
