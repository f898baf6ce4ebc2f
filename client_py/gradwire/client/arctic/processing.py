"""The `processing` of a call: which loss, told what, and which steps after the model.

Knows: the descriptor {"loss_fn", "config", "post"} and the names of post steps. Does not know: losses, which are
the server's to look up (the document's dotted names included).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradwire.client._convert.nearest import check_names, unknown_name
from gradwire.client.arctic.batch import DecodedBatch

_KEYS = ("loss_fn", "config", "post")
_PREFIX = "arctic_platform.rl.processors."
_LOG_PROBS = ("compute_logprobs", "compute_entropy_and_logprobs", "ap_compute_logprobs")
_ENTROPY = ("compute_entropy", "compute_entropy_and_logprobs", "ap_compute_logprobs")
POST_STEPS = tuple(sorted({"identity", "apply_temperature", *_LOG_PROBS, *_ENTROPY}))


@dataclass(slots=True)
class Processing:
    """A descriptor taken apart."""

    loss: str | None = None
    """None: the job's own."""
    loss_config: dict[str, Any] = field(default_factory=dict)
    log_probs: bool = False
    """Return log-probs."""
    entropy: bool = False
    """Return entropies."""
    temperature: float | None = None
    """Divides the logits: apply_temperature is among the steps."""


def decode_processing(processing: object, batch: DecodedBatch, temperature: float | None) -> Processing:
    """`processing`, or what the batch carries. `temperature` is the one of ds_worker_config.

    ValueError names a key or step that is unknown, and the nearest that is known.
    """
    given = batch.processing if processing is None else processing
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ValueError(f"processing is a {type(given).__name__}; it is a dict of {', '.join(_KEYS)}")
    check_names("processing key", given, _KEYS)
    loss, config = given.get("loss_fn"), given.get("config")
    if loss is not None and not isinstance(loss, str):
        raise ValueError(f"processing.loss_fn is a {type(loss).__name__}; it is a name, such as 'grpo'")
    if config is not None and not isinstance(config, Mapping):
        raise ValueError(f"processing.config is a {type(config).__name__}; it is a dict")
    decoded = Processing(loss, dict(config or {}))
    if batch.meta.get("calculate_entropy"):
        decoded.entropy = True
    if batch.meta.get("return_fwd_batch"):
        decoded.log_probs = True
    _add_steps(given.get("post"), decoded, batch, temperature)
    return decoded


def _add_steps(post: object, decoded: Processing, batch: DecodedBatch, temperature: float | None) -> None:
    if post is None:
        post = []
    if isinstance(post, str) or not isinstance(post, list | tuple):
        raise ValueError(f"processing.post is a {type(post).__name__}; it is a list of names of steps")
    computed = ""
    for position, step in enumerate(post):
        name = str(step).removeprefix(_PREFIX)
        if name not in POST_STEPS:
            raise ValueError(unknown_name(f"processing.post[{position}]", step, POST_STEPS))
        if name == "apply_temperature":
            if computed:
                raise ValueError(f"processing.post: apply_temperature comes after {computed}; it goes before it")
            decoded.temperature = _temperature(decoded, batch, temperature)
        elif name != "identity":
            computed = name
        decoded.log_probs |= name in _LOG_PROBS
        decoded.entropy |= name in _ENTROPY
    if decoded.temperature is None and batch.meta.get("temperature", 1.0) != 1.0:
        batch.warnings.append("batch.meta.temperature has no effect: apply_temperature is not among processing.post")


def _temperature(decoded: Processing, batch: DecodedBatch, default: float | None) -> float:
    known = {
        "processing.config.temperature": decoded.loss_config.get("temperature"),
        "batch.meta.temperature": batch.meta.get("temperature"),
        "ds_worker_config.temperature": default,
    }
    for where, value in known.items():
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
                raise ValueError(f"{where} is {value!r}; a temperature is above 0 and at most 100")
            return float(value)
    raise ValueError(f"processing.post: apply_temperature needs a temperature; give one of {', '.join(known)}")


def loss_call(decoded: Processing, batch: DecodedBatch) -> tuple[str | None, dict[str, Any] | None]:
    """Name and configuration of the loss, with what the batch and the steps add to it."""
    config = dict(decoded.loss_config)
    for key in ("global_batch_size", "batch_num_tokens"):
        if key in batch.meta:
            config.setdefault(key, batch.meta[key])
    if decoded.temperature is not None:
        config["temperature"] = decoded.temperature
    return decoded.loss, config or None
