"""The curves of a run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def draw(records: Sequence[Record], picture: Path, *, title: str) -> None:
    """Rewards, loss and gradient norm by step, as a PNG. `records` are the lines of metrics.jsonl."""
    import matplotlib

    matplotlib.use("Agg")  # no display needed
    from matplotlib import pyplot

    steps = [record for record in records if record["kind"] == "step"]
    held_out = [record for record in records if record["kind"] == "held_out"]
    figure, (rewards, losses, norms) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    figure.suptitle(title)
    rewards.plot(_column(steps, "step"), _column(steps, "reward"), color="tab:gray", alpha=0.7, label="training batch")
    rewards.plot(_column(held_out, "step"), _column(held_out, "reward"), "o-", color="tab:green", label="held out")
    rewards.plot(
        _column(held_out, "step"), _column(held_out, "accuracy"), ":", color="tab:green", label="right answers"
    )
    rewards.set(title="reward", ylim=(0, 1))
    rewards.legend(loc="lower right")
    trained = [record for record in steps if record["loss"] is not None]
    losses.plot(_column(trained, "step"), _column(trained, "loss"), color="tab:blue")
    losses.set(title="loss")
    norms.plot(_column(trained, "step"), _column(trained, "grad_norm"), color="tab:orange")
    norms.set(title="gradient norm")
    norms.set_ylim(bottom=0)
    for axes in (rewards, losses, norms):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def _column(records: Sequence[Record], name: str) -> list[Any]:
    return [record[name] for record in records]
