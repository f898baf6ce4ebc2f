"""Low-rank adapters on a model: put there by peft, named as in peft's files, added to weights.

LoRA is arXiv 2106.09685: a linear layer gives W x + alpha / rank * B A x, and only A [rank, in] and
B [out, rank] train. B begins as zeros, so that a fresh adapter changes nothing. Does not know: deepspeed, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from gradwire.server.engines.training import LoraConfig
from gradwire.server.errors import FieldViolation, InvalidArgument, Unimplemented
from gradwire.server.losses.names import did_you_mean

PEFT_PREFIX = "base_model.model."
_ADAPTER = "default"  # peft's name of the only adapter of a model; its files leave it out
_FACTOR_ENDS = tuple(f".lora_{factor}.{_ADAPTER}.weight" for factor in "AB")


@dataclass(frozen=True, slots=True)
class Factors:
    """What is added to one weight: `scaling` * `b` @ `a`."""

    a: nn.Parameter  # [rank, in]
    b: nn.Parameter  # [out, rank]
    scaling: float


def add_adapter(causal_lm: PreTrainedModel, config: LoraConfig, *, seed: int) -> None:
    """Put a fresh adapter into a model and freeze everything else.

    A is drawn from peft's default (Kaiming uniform), from `seed` alone. Raises InvalidArgument, at
    `config.lora.target_modules`, naming the model's modules.
    """
    from peft import inject_adapter_in_model

    peft_config = peft_lora_config(config, _targets(causal_lm, config.target_modules))
    torch.manual_seed(seed)
    inject_adapter_in_model(peft_config, causal_lm, adapter_name=_ADAPTER)


def peft_lora_config(config: LoraConfig, targets: Sequence[str]) -> Any:
    """peft's own configuration of an adapter."""
    from peft import LoraConfig as PeftLoraConfig

    whole = int(config.alpha) if float(config.alpha).is_integer() else config.alpha
    return PeftLoraConfig(
        r=config.rank,
        lora_alpha=whole,
        target_modules=list(targets),
        lora_dropout=0.0,  # the log-probs trained on must be those of the policy itself
        bias="none",
        task_type="CAUSAL_LM",
    )


def adapter_factors(causal_lm: PreTrainedModel) -> dict[str, Factors]:
    """An adapter's factors by the Hugging Face name of the weight that they are added to."""
    found = {}
    for name, module in causal_lm.named_modules():
        if hasattr(module, "lora_A") and _ADAPTER in module.lora_A:
            found[f"{name}.weight"] = Factors(
                module.lora_A[_ADAPTER].weight, module.lora_B[_ADAPTER].weight, float(module.scaling[_ADAPTER])
            )
    return found


def adapter_name(name: str) -> str | None:
    """Name in peft's files of a parameter of the adapted model; None for one of the model itself."""
    return PEFT_PREFIX + name.replace(f".{_ADAPTER}.weight", ".weight") if name.endswith(_FACTOR_ENDS) else None


def base_name(name: str) -> str:
    """Hugging Face name of a parameter of the model itself: peft has put another layer around some."""
    return name.replace(".base_layer.", ".")


def targets_of(names: Sequence[str]) -> list[str]:
    """The modules that an adapter's tensors, named as in peft's files, belong to: ends of names, sorted."""
    return sorted({name.split(".")[-3] for name in names})


def merged(weight: Tensor, factors: Factors | None) -> Tensor:
    """W + scaling * B A, computed in float32 and rounded to the weight's dtype once."""
    if factors is None:
        return weight.detach()
    delta = (factors.b.detach().float() @ factors.a.detach().float()) * factors.scaling
    return (weight.detach().float() + delta).to(weight.dtype)


def _targets(causal_lm: PreTrainedModel, wanted: Sequence[str]) -> list[str]:
    """The modules asked for, or all linear layers but the head. Raises InvalidArgument for one that is none."""
    head = causal_lm.get_output_embeddings()
    linear = [n for n, m in causal_lm.named_modules() if isinstance(m, nn.Linear) and m is not head]
    kinds = sorted({name.rpartition(".")[2] for name in linear})
    if not kinds:
        raise Unimplemented("MODEL_UNSUPPORTED", f"{type(causal_lm).__name__} has no linear layers to adapt")
    if not wanted:
        return kinds
    bad = [
        FieldViolation(
            f"config.lora.target_modules[{index}]",
            f"{name!r} is no linear layer of this model (the head cannot be adapted); there are {', '.join(kinds)}, "
            f"and whole names like {linear[0]}.{did_you_mean(name, kinds)}",
        )
        for index, name in enumerate(wanted)
        if not any(layer == name or layer.endswith(f".{name}") for layer in linear)
    ]
    if bad:
        raise InvalidArgument(bad)
    return sorted(set(wanted))
