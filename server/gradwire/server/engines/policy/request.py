"""Parts of a request to a policy: one agent's share, and arrays on their way into and out of a network.

Knows: dtypes and normalisation. Does not know: how networks are run (`batcher`) or agents found (`engine`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire.server.engines.acting import Value
from gradwire.server.engines.policy import values
from gradwire.server.engines.policy.manifest import Network
from gradwire.server.engines.policy.network import OnnxNetwork
from gradwire.server.errors import FailedPrecondition, InvalidArgument


@dataclass(slots=True)  # frozen ones take three times as long to make
class Ask:
    """One agent's part of a request. The paths begin at the request's fields."""

    agent: str
    observation: Value
    hidden_state: Value
    mask: Value
    dictated: Value

    def path(self, field: str) -> str:
        return f"{field}.{self.agent}" if self.agent else field


def as_input(key: str, array: Any, spec: Network, network: OnnxNetwork, path: str) -> Any:
    """The checked observation as the network takes it: normalised, in its dtype."""
    normalization = spec.normalization.get(key)
    if normalization is not None:
        array = values.normalize(array, normalization, array.shape[1:])
    return cast(array, network.input_dtypes[key], path)


def cast(array: Any, dtype: np.dtype[Any], path: str) -> Any:
    """The array in a dtype that can hold it; InvalidArgument when that loses an integer or makes an infinity."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        changed = array.astype(dtype)
    if not np.can_cast(array.dtype, dtype):
        exact = dtype.kind == "f" or bool((changed == array).all())
        if not exact or (dtype.kind == "f" and not bool(np.isfinite(changed).all())):
            raise InvalidArgument.at(path, f"holds a number that {dtype}, which the network takes, cannot hold")
    return changed


def check_numbers(outputs: Mapping[str, Any]) -> None:
    """Raises FailedPrecondition when an output is NaN: a finite observation then met broken weights."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not values.all_finite(array) and bool(np.isnan(array).any()):
            raise _broken(f"output {name} is NaN")


def check_finite(action: Any) -> None:
    """Raises FailedPrecondition when an action is infinite, which only an unbounded space lets through."""
    if action.dtype.kind == "f" and not values.all_finite(action):
        raise _broken("action is not finite")


def _broken(what: str) -> FailedPrecondition:
    return FailedPrecondition("POLICY_OUTPUT_NOT_FINITE", f"the network's {what} for this observation")


def some(names: Mapping[str, Any]) -> str:
    """The first ten names, for an error."""
    listed = sorted(names)
    return ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
