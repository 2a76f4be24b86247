"""Tables of plain text: columns as wide as their widest cell, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned", "text_table"]


def aligned(rows: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Name and value, the values one below the other."""
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{indent}{name:<{width}}  {value}".rstrip() for name, value in rows]


def text_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int] = (0,),
    indent: str = "  ",
) -> list[str]:
    """Lines of a table.

    Args:
        head: Titles of the columns.
        rows: Cells, one for each title.
        left: Columns whose cells stand to the left.
        indent: In front of each line.
    """
    whole = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in whole) for k in range(len(head))]
    lines = []
    for row in whole:
        cells = [
            cell.ljust(w) if k in left else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
