"""Installs two losses as an operator would: a package on the path whose entry points are Loss objects."""

from __future__ import annotations

from pathlib import Path

MODULE = '''
from dataclasses import dataclass

from gradwire.server.losses import Loss, LossConfig


@dataclass(frozen=True, slots=True)
class SquareConfig(LossConfig):
    """Options of the loss below."""

    target: float = -1.0

    def problems(self):
        found = LossConfig.problems(self)
        return found if self.target <= 0 else [*found, ("target", "must be <= 0")]


def load_square():
    from gradwire.server.losses.aggregate import token_weights
    from gradwire.server.losses.inputs import LossOutput
    from gradwire.server.losses.metrics import Metric, Reduction

    def square(inputs, config, whole):
        loss = (token_weights(inputs, config, whole) * (inputs.log_probs - config.target).square()).sum()
        return LossOutput(loss, {"loss": Metric(Reduction.SUM, float(loss.detach()))})

    return square


def load_broken():
    def broken(inputs, config, whole):
        raise ZeroDivisionError("a fault of the loss")

    return broken


square = Loss("square", SquareConfig, load_square, summary="(lp - target)^2", source="nowhere")
broken = Loss("broken", LossConfig, load_broken)
'''
ENTRY_POINTS = "[gradwire.losses]\nsquare = square_loss:square\nbroken = square_loss:broken\n"


def install_plugin(folder: Path) -> Path:
    """A folder to put on the path."""
    (folder / "square_loss.py").write_text(MODULE)
    metadata = folder / "square_loss-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: square-loss\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
