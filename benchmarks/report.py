"""What a benchmark found: rows of a table, which it writes as JSON and `run.py` prints together."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of gradwire, beside what it is measured against."""

    what: str
    ours: str
    reference: str = ""
    ratio: float | None = None
    """Above 1 gradwire is the better one."""
    spread: tuple[float, float] | None = None
    """Lowest and highest ratio of a round."""
    required: float | None = None
    details: dict[str, list[float]] = field(default_factory=dict)
    """Every sample, by side."""

    @property
    def falls_short(self) -> bool:
        """Whether the ratio is below what is required."""
        return self.ratio is not None and self.required is not None and self.ratio < self.required


def compared(
    what: str,
    ours: Sequence[float],
    reference: Sequence[float],
    unit: str,
    *,
    more_is_better: bool,
    required: float | None = None,
    reference_name: str = "",
) -> Row:
    """A row of two sides that took turns: medians, and the median of the rounds' own ratios.

    A round's two halves stand next to each other in time, so what else the machine does hits both; medians of
    each side alone would mix rounds of a busy machine with rounds of an idle one.
    """
    ratios = [a / b if more_is_better else b / a for a, b in zip(ours, reference, strict=True)]
    name = f" ({reference_name})" if reference_name else ""
    return Row(
        what,
        f"{number(statistics.median(ours))} {unit}",
        f"{number(statistics.median(reference))} {unit}{name}",
        statistics.median(ratios),
        (min(ratios), max(ratios)),
        required,
        {"ours": list(ours), "reference": list(reference)},
    )


def number(value: float) -> str:
    """Three digits are all that a shared machine gives."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """The rows for a terminal."""
    heads = ("what", "gradwire", "against", "ratio", "rounds", "required")
    cells = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    required = "" if row.required is None else f">= {row.required:.2f}{'  FALLS SHORT' if row.falls_short else ''}"
    return (
        row.what,
        row.ours,
        row.reference,
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.spread is None else f"{row.spread[0]:.2f} to {row.spread[1]:.2f}",
        required,
    )


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A benchmark's command line, with what all of them take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file, too")
    return parser


def publish(rows: Sequence[Row], file: Path | None) -> None:
    """Print the rows, and write them for `load`."""
    print(table(rows), flush=True)
    if file is not None:
        file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def load(file: Path) -> list[Row]:
    """The rows that `publish` wrote."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [Row(**{**row, "spread": tuple(row["spread"]) if row["spread"] else None}) for row in found]
