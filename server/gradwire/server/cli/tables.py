"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence


def show(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their heads; what is empty or None is "-"."""
    table = [list(heads), *([str(cell or "-") for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
