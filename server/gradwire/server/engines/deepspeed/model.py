"""The policy: a Hugging Face causal language model that gives log-probs of chosen tokens.

Knows: loading a folder of safetensors, the packed layout, parameter names. Does not know: deepspeed,
losses or optimizers.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from gradwire.server.engines.deepspeed.attention import IMPLEMENTATION, PackedLayout
from gradwire.server.engines.deepspeed.head import LogProbHead
from gradwire.server.engines.deepspeed.lora import Factors, adapter_factors, adapter_name, add_adapter, base_name
from gradwire.server.engines.deepspeed.packing import MicroBatch, plan
from gradwire.server.engines.training import LoraConfig
from gradwire.server.errors import InvalidArgument, Unimplemented

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class PolicyModel(nn.Module):
    """Backbone and head of a causal LM; `names` gives each parameter's name in it.

    A tied parameter stands once, under its first name (`model.embed_tokens.weight`). `factors` are those of an
    adapter, by the Hugging Face name of the weight that they are added to; empty without one.
    """

    def __init__(self, causal_lm: PreTrainedModel) -> None:
        super().__init__()
        output = causal_lm.get_output_embeddings()
        if not isinstance(output, nn.Linear):
            raise Unimplemented("MODEL_UNSUPPORTED", f"{type(causal_lm).__name__} has no linear output layer")
        self.backbone = causal_lm.base_model
        self.head = LogProbHead(output.weight, output.bias)
        self.hf_config = causal_lm.config
        self.hf_generation_config = causal_lm.generation_config
        by_identity = {id(parameter): name for name, parameter in causal_lm.named_parameters()}
        self.names = {own: by_identity[id(parameter)] for own, parameter in self.named_parameters()}
        self.factors: dict[str, Factors] = adapter_factors(causal_lm)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        packing: PackedLayout,
        hidden: Tensor,
        labels: Tensor,
        temperature: float,
    ) -> Tensor:
        """tokens, positions int64 [T]; hidden, labels int64 [N] -> [2, N]: log-probs and entropy."""
        states = self.hidden_states(tokens, positions, packing)
        scored: Tensor = self.head(states.index_select(0, hidden), labels, temperature)
        return scored

    def hidden_states(self, tokens: Tensor, positions: Tensor, packing: PackedLayout) -> Tensor:
        """What the head reads: [T, H]."""
        states: Tensor = self.backbone(
            input_ids=tokens.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False, packing=packing
        ).last_hidden_state
        return states[0]

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: token ids are below this."""
        return int(self.hf_config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int:
        """Tokens that a row may have; 0 when the model does not say."""
        return int(getattr(self.hf_config.get_text_config(), "max_position_embeddings", None) or 0)

    def hf_parameters(self) -> dict[str, nn.Parameter]:
        """The model's parameters by their Hugging Face names, in its order, without an adapter's."""
        named = ((self.names[own], parameter) for own, parameter in self.named_parameters())
        return {base_name(name): parameter for name, parameter in named if adapter_name(name) is None}

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """What trains: all parameters by Hugging Face name, or an adapter's by the names of peft's files."""
        if not self.factors:
            return self.hf_parameters()
        named = ((adapter_name(self.names[own]), parameter) for own, parameter in self.named_parameters())
        return {name: parameter for name, parameter in named if name is not None}


def load_policy(
    folder: Path, *, dtype: str, gradient_checkpointing: bool, lora: LoraConfig | None = None, seed: int = 0
) -> PolicyModel:
    """A model from a local folder of safetensors, without dropout; all of it trains, or only a new adapter.

    `seed` seeds the adapter. Raises InvalidArgument for a dtype or adapted modules that are unknown,
    Unimplemented for a model whose logits are not those of a linear layer over packed hidden states.
    """
    if dtype not in DTYPES:
        raise InvalidArgument.at("config.dtype", f"{dtype!r} is none of {', '.join(DTYPES)}")
    causal_lm = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=DTYPES[dtype],
        attn_implementation=IMPLEMENTATION,
        local_files_only=True,
        use_safetensors=True,  # other formats are pickles
        trust_remote_code=False,
    )
    _without_dropout(causal_lm)
    causal_lm.train()
    if gradient_checkpointing:
        causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if lora is not None:
        add_adapter(causal_lm, lora, seed=seed)
    policy = PolicyModel(causal_lm)
    _check_log_probs(causal_lm, policy)
    return policy


def _without_dropout(model: PreTrainedModel) -> None:
    """The log-probs trained on must be those of the policy itself, not of a random thinning of it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


@torch.no_grad()
def _check_log_probs(causal_lm: PreTrainedModel, policy: PolicyModel) -> None:
    """Two short packed rows must score as the model itself scores them one by one.

    Some architectures scale or cap their logits, or keep state along the row: better refused at the start
    than trained wrongly.
    """
    ids = np.random.default_rng(0).integers(0, policy.vocab_size, 14).astype(np.int32)
    offsets = np.array([0, 9, 14])
    mask = np.ones(14, np.float32)
    mask[offsets[1:] - 1] = 0
    (batch,) = plan(ids, offsets, mask, budget=64)
    got, _ = policy(*tensors_of(batch, torch.device("cpu")), 1.0)
    expected = torch.zeros(14)
    for start, end in pairwise(offsets):
        row = torch.from_numpy(ids[start:end].astype(np.int64))
        logits = causal_lm(input_ids=row.unsqueeze(0), use_cache=False).logits[0].float().log_softmax(-1)
        expected[start : end - 1] = logits[:-1].gather(-1, row[1:, None])[:, 0]
    error = float((got - expected[torch.from_numpy(batch.source)]).abs().max())
    if not error < (1e-3 if causal_lm.dtype == torch.float32 else 0.2):
        raise Unimplemented(
            "MODEL_UNSUPPORTED",
            f"{type(causal_lm).__name__} computes logits in a way that the packed trainer does not follow "
            f"(log-probs differ by {error:.3g}); Llama-like decoders do",
        )


def tensors_of(batch: MicroBatch, device: torch.device) -> tuple[Tensor, Tensor, PackedLayout, Tensor, Tensor]:
    """A planned MicroBatch as the first five arguments of PolicyModel.forward."""
    tokens, positions, hidden, labels = (
        torch.from_numpy(array).to(device) for array in (batch.tokens, batch.positions, batch.hidden, batch.labels)
    )
    return tokens, positions, PackedLayout(batch.segments, len(batch.tokens), device), hidden, labels
