"""A small table that prints itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text, all with the same columns."""

    rows: list[dict[str, str]]

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    def __str__(self) -> str:
        lines = [dict(zip(self.columns, self.columns, strict=True)), *self.rows]
        widths = {column: max(len(line[column]) for line in lines) for column in self.columns}
        return "\n".join("  ".join(line[c].ljust(w) for c, w in widths.items()).rstrip() for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *(list(row.values()) for row in self.rows)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
