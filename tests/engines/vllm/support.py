"""What the tests of the sampling engine share: requests, segments, and a Hugging Face reference."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from gradwire.server.engines.sampling import (
    CompletionDelta,
    PromptInfo,
    SampleEvent,
    SamplerConfig,
    SampleRequest,
    SamplingParams,
    TokenIds,
)
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import InFlightPolicy, TensorSpec, WeightManifest
from gradwire.server.models.resolve import resolve_model

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
State = dict[str, torch.Tensor]


def config(name: str = "tiny", **changes: Any) -> SamplerConfig:
    """A small engine that splits prompts over steps: 64 tokens each."""
    values: dict[str, Any] = {
        "kv_cache_bytes": 128 << 20,
        "max_model_len": 512,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 32,
        **changes,
    }
    return SamplerConfig(name, str(resolve_model(name)), **values)


async def started(settings: SamplerConfig) -> VllmSampler:
    """A running engine; whoever asks for it shuts it down."""
    sampler = VllmSampler(settings)
    await sampler.start(lambda line: None)
    return sampler


async def events(
    sampler: VllmSampler, prompt: str | TokenIds, params: SamplingParams = GREEDY, *, stream: bool = False, **more: Any
) -> list[SampleEvent]:
    """All events of one request."""
    tokens = sampler.tokenize(prompt) if isinstance(prompt, str) else prompt
    return [event async for event in sampler.generate(SampleRequest("test", tokens, params, stream, **more))]


async def sample(
    sampler: VllmSampler, prompt: str | TokenIds, params: SamplingParams = GREEDY, **more: Any
) -> CompletionDelta:
    """The one completion of a request that does not stream."""
    ((completion,),) = [event.deltas for event in await events(sampler, prompt, params, **more)]
    return completion


async def greedy(sampler: VllmSampler, prompt: str = "Hello there") -> list[int]:
    """Tokens of the most likely continuation."""
    return (await sample(sampler, prompt)).token_ids.tolist()


def prompt_of(collected: list[SampleEvent]) -> PromptInfo:
    """The prompt's part, which only the first event may have."""
    assert all(event.prompt is None for event in collected[1:])
    assert collected[0].prompt is not None
    return collected[0].prompt


def joined(collected: list[SampleEvent], index: int = 0) -> CompletionDelta:
    """All deltas of one completion as one; asserts that they follow each other without a gap."""
    deltas = [delta for event in collected for delta in event.deltas if delta.index == index]
    end = 0
    for number, delta in enumerate(deltas):
        assert delta.first_token_index == end
        end += len(delta.token_ids)
        assert (delta.finish_reason is not None) == (number == len(deltas) - 1)
    parts = [delta.log_probs for delta in deltas if delta.log_probs is not None]
    return replace(
        deltas[-1],
        first_token_index=0,
        token_ids=np.concatenate([delta.token_ids for delta in deltas]),
        text="".join(delta.text for delta in deltas),
        log_probs=np.concatenate(parts) if parts else None,
        weight_spans=tuple(span for delta in deltas for span in delta.weight_spans),
    )


def folder_state(name: str = "tiny") -> State:
    """The parameters of a model folder by Hugging Face name, tied ones once."""
    return load_file(Path(resolve_model(name)) / "model.safetensors")


def changed(state: State, seed: int = 0) -> State:
    """Other weights of the same shapes: each value scaled by up to a third."""
    generator = torch.Generator().manual_seed(seed)
    return {name: tensor * (1 + torch.rand(tensor.shape, generator=generator) / 3) for name, tensor in state.items()}


@contextmanager
def segment_of(state: Mapping[str, torch.Tensor]) -> Iterator[tuple[SharedSegment, WeightManifest]]:
    """A shared-memory segment with these tensors."""
    specs, offset = [], 0
    for name, tensor in state.items():
        nbytes = tensor.numel() * tensor.element_size()
        specs.append(TensorSpec(name, NAMES[tensor.dtype], tuple(tensor.shape), offset, nbytes))
        offset += -(-nbytes // 64) * 64
    with SharedSegment.create(offset, label="test") as segment:
        for spec in specs:
            raw: npt.NDArray[np.uint8] = state[spec.name].contiguous().view(-1).view(torch.uint8).numpy()
            segment.array(spec.offset, spec.nbytes)[:] = raw
        yield segment, WeightManifest(tuple(specs), offset)
        segment.unlink()


async def update(
    sampler: VllmSampler, state: State, version: int, policy: InFlightPolicy = InFlightPolicy.KEEP
) -> None:
    """Pause, load, resume: what a weight sync does."""
    with segment_of(state) as (segment, manifest):
        await sampler.pause(policy)
        try:
            await sampler.update_weights(segment.name, manifest, version)
        finally:
            await sampler.resume()


class Reference:
    """The same model by Hugging Face's own code, fp32."""

    def __init__(self, name: str = "tiny") -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(resolve_model(name), dtype=torch.float32).eval()

    def load(self, state: State) -> None:
        """Take these weights."""
        result = self.model.load_state_dict(state, strict=False)
        assert set(result.missing_keys) <= {"lm_head.weight"} and not result.unexpected_keys
        self.model.tie_weights()

    @torch.no_grad()
    def greedy(self, prompt: TokenIds, tokens: int = GREEDY.max_tokens) -> list[int]:
        """The most likely continuation, past any end-of-sequence token."""
        ids = [int(token) for token in prompt]
        for _ in range(tokens):
            ids.append(int(self.model(torch.tensor([ids])).logits[0, -1].argmax()))
        return ids[len(prompt) :]

    @torch.no_grad()
    def log_probs(self, tokens: list[int]) -> npt.NDArray[np.float32]:
        """float32 [T, V]: row i is the distribution of token i given those before it; row 0 is NaN."""
        rows: npt.NDArray[np.float32] = self.model(torch.tensor([tokens])).logits[0].log_softmax(-1).numpy()
        return np.concatenate([np.full((1, rows.shape[1]), np.nan, np.float32), rows[:-1]])


async def until_idle(sampler: VllmSampler, timeout_s: float = 5.0) -> None:
    """Wait until the engine holds no request."""
    async with asyncio.timeout(timeout_s):
        while await sampler.num_unfinished():  # noqa: ASYNC110  the engine has no event for it
            await asyncio.sleep(0.01)
