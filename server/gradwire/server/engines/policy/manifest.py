"""The schema of a bundle's manifest.json: what a bundle says of its networks.

Knows: fields, limits, and which of them belong together. Does not know: files (`bundle`) or ONNX (`network`).
docs/policies.md is its page for people.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from gradwire.server.engines.policy.spaces import (
    MAX_DEPTH,
    MAX_ROW_ELEMENTS,
    ActionSpace,
    Box,
    Discrete,
    Key,
    MultiBinary,
    MultiDiscrete,
    Shape,
    Space,
    Strict,
    depth,
    elements,
    leaves,
)
from gradwire.server.errors import FieldViolation, InvalidArgument

MANIFEST = "manifest.json"
FORMAT = "gradwire-policy"
VERSION = 1
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.onnx$")]
NetworkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Number = float | int

Head = Literal[
    "categorical",
    "multi_categorical",
    "bernoulli",
    "squashed_gaussian",
    "clipped_gaussian",
    "deterministic",
    "q_values",
]
HEAD_OUTPUTS: dict[Head, tuple[str, ...]] = {
    "categorical": ("logits",),
    "multi_categorical": ("logits",),
    "bernoulli": ("logits",),
    "squashed_gaussian": ("mean", "log_std"),
    "clipped_gaussian": ("mean", "log_std"),
    "deterministic": ("action",),
    "q_values": ("q_values",),
}
_HEAD_SPACES: dict[Head, type[Strict]] = {
    "categorical": Discrete,
    "multi_categorical": MultiDiscrete,
    "bernoulli": MultiBinary,
    "squashed_gaussian": Box,
    "clipped_gaussian": Box,
    "deterministic": Box,
    "q_values": Discrete,
}


class BundleError(InvalidArgument):
    """The bundle cannot be served; the message names its file and field."""

    def __init__(self, file: str, field: str, description: str) -> None:
        at = f"{file}: {field}" if field else file
        super().__init__([FieldViolation(at, description)], reason="BAD_BUNDLE")


class File(Strict):
    """One file of the bundle."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=1, le=2**40)]


class State(Strict):
    """A part of a recurrent network's state: input `state.NAME`, output `next_state.NAME`, batch dimension first."""

    shape: Shape
    """Of one row, without the batch dimension."""
    initial: Number | tuple[Number, ...] = 0.0
    """Of all elements, or one an element in row-major order."""

    @model_validator(mode="after")
    def _initial_fits(self) -> State:
        count = elements(self.shape)
        if isinstance(self.initial, tuple) and len(self.initial) != count:
            raise ValueError(
                f"initial has {len(self.initial)} numbers, but shape {list(self.shape)} has {count} elements"
            )
        return self


class Normalization(Strict):
    """clip((x - mean) / sqrt(variance + epsilon), -clip, clip) of one observation leaf (VecNormalize of SB3)."""

    mean: tuple[Number, ...]
    """One an element, row-major."""
    variance: tuple[Annotated[Number, Field(ge=0)], ...]
    epsilon: Annotated[Number, Field(gt=0)] = 1e-8
    clip: Annotated[Number, Field(gt=0)] | None = None


class Network(Strict):
    """One ONNX graph. Its inputs are the leaves of the observation space, `obs` or `obs.KEY...`, and its states."""

    file: FileName
    observation_space: Space
    """Of a supervised model: of its inputs."""
    action_space: ActionSpace | None = None
    """Only, and always, of a policy."""
    head: Head | None = None
    """How outputs become actions. Only, and always, of a policy."""
    outputs: Annotated[tuple[Key, ...], Field(max_length=64)] = ()
    """Outputs that are the predictions. Only, and always, of a supervised model."""
    states: Annotated[dict[Key, State], Field(default_factory=dict, max_length=64)]
    normalization: Annotated[dict[Key, Normalization], Field(default_factory=dict)]
    """By input name."""
    check_bounds: bool = True
    """Refuse real observations outside the bounds of their box. Integers are always checked."""

    @field_validator("observation_space")
    @classmethod
    def _not_too_deep(cls, space: Space) -> Space:
        if depth(space) > MAX_DEPTH:
            raise ValueError(f"has spaces in each other more than {MAX_DEPTH} deep")
        return space

    @model_validator(mode="after")
    def _head_fits(self) -> Network:
        if (self.head is None) != (self.action_space is None):
            raise ValueError("a head needs an action_space, and an action_space a head")
        if self.head is not None and not isinstance(self.action_space, _HEAD_SPACES[self.head]):
            wanted = _HEAD_SPACES[self.head].__name__
            raise ValueError(f"head {self.head} acts in a {wanted} space, but action_space is another")
        if self.head == "squashed_gaussian" and isinstance(self.action_space, Box) and not self.action_space.bounded:
            raise ValueError("head squashed_gaussian needs an action_space with finite bounds")
        if (self.head is None) != bool(self.outputs):
            raise ValueError("give either a head (a policy) or outputs (a supervised model)")
        return self

    @model_validator(mode="after")
    def _inputs_fit(self) -> Network:
        found = list(leaves(self.observation_space, "obs"))
        inputs = dict(found)
        if len(inputs) < len(found):
            raise ValueError("observation_space: two leaves have the same name; avoid dots in keys")
        shapes = [tuple(leaf.shape) for leaf in inputs.values()] + [state.shape for state in self.states.values()]
        if (size := sum(map(elements, shapes))) > MAX_ROW_ELEMENTS:
            raise ValueError(f"observations and states have {size} elements; at most {MAX_ROW_ELEMENTS} are taken")
        for name, normalization in self.normalization.items():
            leaf = inputs.get(name)
            if not isinstance(leaf, Box):
                raise ValueError(f"normalization: {name} is not the name of a Box observation")
            count = elements(leaf.shape)
            if len(normalization.mean) != count or len(normalization.variance) != count:
                raise ValueError(f"normalization: {name} needs {count} means and variances")
        return self


class Source(Strict):
    """Where a bundle was converted from."""

    framework: Annotated[str, Field(max_length=100)] = ""
    version: Annotated[str, Field(max_length=100)] = ""


class Manifest(Strict):
    """A bundle."""

    format: Literal["gradwire-policy"] = "gradwire-policy"
    version: Literal[1] = 1
    kind: Literal["rl_policy", "supervised"]
    algo: Annotated[str, Field(max_length=100)] = ""
    source: Source = Source()
    files: Annotated[dict[FileName, File], Field(min_length=1, max_length=256)]
    networks: Annotated[dict[NetworkName, Network], Field(min_length=1, max_length=256)]
    agents: Annotated[dict[Key, NetworkName], Field(default_factory=dict, max_length=4096)]
    """Network of each agent of a multi-agent policy. Empty: a single agent, and one network."""
    require_all_agents: bool = False
    """Refuse observations that leave agents out, as dead agents are."""
    deterministic: bool = False
    """What a request gets that does not say."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Manifest:
        used = {network.file for network in self.networks.values()}
        if used != set(self.files):
            odd = sorted(used ^ set(self.files))
            raise ValueError(f"files and networks differ in {', '.join(odd)}; each file is listed in files and used")
        for name, network in self.networks.items():
            if (network.head is None) != (self.kind == "supervised"):
                raise ValueError(f"networks.{name}: a policy has a head and a supervised model has outputs")
            if self.kind == "supervised" and network.states:
                raise ValueError(f"networks.{name}: a supervised model has no states")
        if self.agents and self.kind == "supervised":
            raise ValueError("agents: a supervised model has none")
        served = set(self.agents.values()) if self.agents else set(list(self.networks)[:1])
        if served != set(self.networks):
            odd = sorted(served ^ set(self.networks))
            raise ValueError(f"agents and networks differ in {', '.join(odd)}; each network serves an agent")
        return self


def parse_manifest(text: bytes) -> Manifest:
    """The manifest; BundleError names the field that is wrong."""
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise BundleError(MANIFEST, "", f"is not JSON: {error}") from error
    if isinstance(value, dict) and value.get("format") == FORMAT and value.get("version") != VERSION:
        raise BundleError(MANIFEST, "version", f"is {value.get('version')!r}; this server reads version {VERSION}")
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BundleError(MANIFEST, field, first["msg"].removeprefix("Value error, ")) from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return keys
