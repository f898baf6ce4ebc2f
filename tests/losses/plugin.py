"""Installs losses as an operator would: a package on the path whose entry points are Loss objects."""

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


@dataclass(frozen=True, slots=True)
class SlipConfig(LossConfig):
    """Which slip the loss below makes."""

    slip: str = ""

    def problems(self):
        return ["slip must be another"] if self.slip == "problems" else LossConfig.problems(self)


def load_slip():
    import torch

    from gradwire.server.losses.inputs import LossOutput
    from gradwire.server.losses.metrics import Metric, Reduction

    def slip(inputs, config, whole):
        loss, metrics = -inputs.log_probs.sum(), {}
        match config.slip:
            case "nothing":
                return None
            case "tensor":
                return loss
            case "tuple":
                return loss, metrics
            case "shape":
                loss = loss.reshape(1)
            case "tokens":
                loss = -inputs.log_probs
            case "float":
                loss = float(loss.detach())
            case "detached":
                loss = loss.detach()
            case "other leaf":
                loss = torch.ones((), requires_grad=True) * 2
            case "backward":
                loss = inputs.log_probs.square().sum()
                loss.backward()
            case "no metrics":
                metrics = None
            case "plain metric":
                metrics = {"x": 0.5}
            case "metric of tokens":
                metrics = {"x": Metric(Reduction.MEAN, inputs.log_probs.detach(), 1.0)}
            case "nan metric":
                metrics = {"x": Metric(Reduction.MAX, float("nan"))}
            case "word":
                metrics = {"x": Metric("sum", 0.5)}
            case "time":
                metrics = {"loss_seconds": Metric(Reduction.SUM, 0.5)}
        return LossOutput(loss, metrics)

    return slip


slip = Loss("slip", SlipConfig, load_slip)
square = Loss("square", SquareConfig, load_square, summary="(lp - target)^2", source="nowhere")
broken = Loss("broken", LossConfig, load_broken)
'''
ENTRY_POINTS = "[gradwire.losses]\nsquare = square_loss:square\nslip = square_loss:slip\nbroken = square_loss:broken\n"

SLIPS = {
    "nothing": "returned None; it returns LossOutput",
    "tensor": r"returned a tensor of shape \[\]; it returns LossOutput",
    "tuple": "returned the tuple .*; it returns LossOutput",
    "shape": r"returned a tensor of shape \[1\] as its loss; a scalar is wanted: the .sum\(\)",
    "tokens": r"returned a tensor of shape \[\d+\] as its loss; a scalar is wanted",
    "float": "returned the float .* as its loss; a scalar tensor with gradient",
    "detached": "does not depend on the log-probs",
    "other leaf": "does not depend on the log-probs",
    "backward": "has no gradient: RuntimeError: Trying to backward through the graph a second time",
    "no metrics": "returned None as its metrics; a dict of name: Metric",
    "plain metric": "returned the float 0.5 as the metric 'x'; Metric",
    "metric of tokens": r"the metric 'x' with a tensor of shape \[\d+\] as its value; it is a float",
    "nan metric": "the metric 'x' with a value that is NaN",
    "word": "the metric 'x' with reduction 'sum'; it is one of Reduction's",
    "time": "a metric named 'loss_seconds', which the trainer measures itself",
    "problems": r"SlipConfig.problems\(\) returned 'slip must be another'; it returns a list of \(key, text\) pairs",
}
"""What the loss `slip` does wrong, and what is said of it."""


def install_plugin(folder: Path) -> Path:
    """A folder to put on the path."""
    (folder / "square_loss.py").write_text(MODULE)
    metadata = folder / "square_loss-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: square-loss\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
