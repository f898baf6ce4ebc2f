"""Calls a loss's function and looks at what it returns, before anything is accumulated.

A loss may be the operator's own: whatever it raises or returns becomes an error that says what was returned and what is
wanted, and nothing else ends or changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from gradwire.server.errors import GradwireError, InvalidArgument
from gradwire.server.losses.config import LossConfig
from gradwire.server.losses.contract import FAILED, shortened
from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.metrics import TIMES, Metric, Reduction
from gradwire.server.losses.normalizer import LossNormalizer
from gradwire.server.losses.registry import Loss, LossFunction

LONGEST = 500  # characters of an error's text; a loss's own may be any


def load_loss(loss: Loss) -> LossFunction:
    """The loss's function. Raises InvalidArgument (LOSS_FAILED)."""
    try:
        function: Any = loss.load()
    except Exception as error:
        raise _failed(loss, f"could not be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise _failed(loss, f"has a load() that returned {_shown(function)}; it returns a function")
    found: LossFunction = function
    return found


def compute_loss(
    loss: Loss, function: LossFunction, inputs: LossInputs, config: LossConfig, whole: LossNormalizer
) -> LossOutput:
    """The micro-batch's summand, a scalar, with its metrics. Raises InvalidArgument (LOSS_FAILED)."""
    try:
        output: Any = function(inputs, config, whole)
    except GradwireError:
        raise
    except Exception as error:
        raise _failed(loss, f"failed on this batch: {type(error).__name__}: {error}") from error
    if problem := _problem(output):
        raise _failed(loss, problem)
    metrics = {**output.metrics, "loss": Metric(Reduction.SUM, float(output.loss.detach()))}
    return LossOutput(output.loss, metrics)


def gradient_of(loss: Loss, output: LossOutput, by: Tensor) -> Tensor:
    """Gradient of the loss by a tensor, of its shape. Raises InvalidArgument (LOSS_FAILED)."""
    gradient = None
    if output.loss.requires_grad:
        try:
            (gradient,) = torch.autograd.grad(output.loss, by, allow_unused=True)
        except Exception as error:
            raise _failed(loss, f"has no gradient: {type(error).__name__}: {error}") from error
    if gradient is None:
        raise _failed(loss, "does not depend on the log-probs: it was detached from them, or computed without them")
    return gradient


def refuse_nan(loss: Loss, output: LossOutput) -> None:
    """Raises InvalidArgument (LOSS_FAILED) for a metric that is NaN.

    Asked last: where the loss itself is not finite, that is the news, and which row it is from.
    """
    for name, metric in output.metrics.items():
        for part in ("value", "weight"):
            if math.isnan(getattr(metric, part)):
                raise _failed(loss, f"returned the metric {name!r} with a {part} that is NaN")


def _problem(output: Any) -> str:
    """What is wrong with what a loss returned; empty where nothing is."""
    if not isinstance(output, LossOutput):
        return f"returned {_shown(output)}; it returns LossOutput(loss, metrics)"
    if not isinstance(output.loss, Tensor):
        return f"returned {_shown(output.loss)} as its loss; a scalar tensor with gradient is wanted"
    if output.loss.shape != ():
        return (
            f"returned {_shown(output.loss)} as its loss; a scalar is wanted: the .sum() of token_weights times each "
            "token's loss"
        )
    if not output.loss.is_floating_point():
        return f"returned a loss of {output.loss.dtype}; it is of the dtype of inputs.log_probs"
    if not isinstance(output.metrics, Mapping):
        return f"returned {_shown(output.metrics)} as its metrics; a dict of name: Metric is wanted"
    return next(filter(None, (_metric_problem(*entry) for entry in output.metrics.items())), "")


def _metric_problem(name: Any, metric: Any) -> str:
    if not isinstance(name, str):
        return f"returned a metric named {shortened(name)}; a name is a str"
    if name in TIMES:
        return f"returned a metric named {name!r}, which the trainer measures itself; give it another name"
    if not isinstance(metric, Metric):
        return (
            f"returned {_shown(metric)} as the metric {name!r}; Metric(Reduction.SUM | MEAN | MAX, value) is wanted, "
            "for MEAN with the weighted sum and its weight"
        )
    if not isinstance(metric.reduction, Reduction):
        return f"returned the metric {name!r} with reduction {shortened(metric.reduction)}; it is one of Reduction's"
    for part in ("value", "weight"):
        number = getattr(metric, part)
        if not isinstance(number, Real):
            return f"returned the metric {name!r} with {_shown(number)} as its {part}; it is a float: float(x.detach())"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"the {type(value).__name__} {shortened(value)}"


def _failed(loss: Loss, what: str) -> InvalidArgument:
    return InvalidArgument.at("loss.name", f"the loss {loss.name!r} {what}"[:LONGEST], reason=FAILED)
