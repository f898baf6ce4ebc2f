"""Torch modules of one's own: FILE.py:FACTORY, called without arguments.

FACTORY returns (module, example) for a supervised model: `module(example)` gives a tensor or a dict of tensors, and
all have a batch dimension first. For a policy it returns a dict with `module`, `observation_space`, `action_space` and
`head`, and `module(obs)` gives the head's outputs: a tensor, or a dict by their names. With `states`, initial values of
one row by name, it is `module(obs, states)`, which gives (outputs, next states).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gradwire.server.convert.export import Graph

_FIRST_OUTPUT = {
    "categorical": "logits",
    "multi_categorical": "logits",
    "bernoulli": "logits",
    "deterministic": "action",
    "q_values": "q_values",
}
_FIELDS = {"module", "observation_space", "action_space", "head", "states", "algo"}


def load(source: str, algo: str) -> tuple[dict[str, Any], dict[str, Graph]]:
    """Manifest fields, and the only network. Runs the file."""
    file, _, factory = source.rpartition(":")
    spec = importlib.util.spec_from_file_location("converted_module", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    sys.path.insert(0, str(Path(file).parent))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, factory, None)):
        raise ValueError(f"{file} has no function {factory!r}")
    made = getattr(module, factory)()
    fields: dict[str, Any] = {"algo": algo, "source": {"framework": "torch", "version": torch.__version__}}
    if isinstance(made, dict):
        return fields | ({"algo": made["algo"]} if "algo" in made else {}), {"policy": _policy(made)}
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise ValueError(f"{factory} must return (module, example inputs), or a dict for a policy")
    return fields, {"model": _supervised(*made)}


def _supervised(module: torch.nn.Module, example: Any) -> Graph:
    module.eval()
    with torch.no_grad():
        found = _call(module, example)
    names = tuple(found) if isinstance(found, Mapping) else ("output",)
    return Graph(
        module=module,
        forward=lambda obs, _: _named(module(obs), names),
        observation_space=_space(example),
        outputs=names,
    )


def _policy(made: dict[str, Any]) -> Graph:
    unknown = sorted(set(made) - _FIELDS)
    if unknown:
        raise ValueError(f"the factory's dict has {unknown[0]}; it takes {', '.join(sorted(_FIELDS))}")
    module, head, states = made["module"], made["head"], made.get("states", {})
    module.eval()

    def forward(obs: Any, given: dict[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        found, following = _call_with_states(module, obs, given) if states else (_call(module, obs), {})
        named = _named(found, (_FIRST_OUTPUT.get(head, "mean"),))
        return {**named, **{f"next_state.{name}": following[name] for name in states}}

    return Graph(
        module=module,
        forward=forward,
        observation_space=made["observation_space"],
        action_space=made["action_space"],
        head=head,
        states=states,
    )


def _call(module: torch.nn.Module, *inputs: Any) -> Any:
    """What the module gives. ValueError with the shapes that it was called with."""
    try:
        return module(*inputs)
    except Exception as error:
        called = ", ".join(map(_shapes, inputs))
        raise ValueError(f"{type(module).__name__}({called}) raised {type(error).__name__}: {error}") from error


def _call_with_states(module: torch.nn.Module, obs: Any, states: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    found = _call(module, obs, states)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping) and set(found[1]) == set(states):
        return found
    raise ValueError(
        f"{type(module).__name__} has states: it is called with (obs, {_shapes(states)}) and must return (outputs, next"
        " states), the latter a dict with the same keys"
    )


def _shapes(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shapes(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + "".join(f"{_shapes(item)}, " for item in value).rstrip() + ")"
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"


def _named(found: Any, names: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
    return found if isinstance(found, Mapping) else {names[0]: found}


def _space(example: Any) -> spaces.Space[Any]:
    """The space of whatever has the example's shapes and dtypes; its first dimension is the batch."""
    if isinstance(example, Mapping):
        # From pairs: gymnasium would sort the keys of a dict.
        return spaces.Dict([(key, _space(value)) for key, value in example.items()])
    if isinstance(example, tuple | list):
        return spaces.Tuple([_space(value) for value in example])
    array = np.asarray(example)
    if array.dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)
    limits = np.iinfo(array.dtype)
    return spaces.Box(limits.min, limits.max, array.shape[1:], array.dtype.type)
