"""What the server asks of an engine: three Protocols. Implementations live beside this file.

All are driven from the front process's event loop: every method is async and does not block
the loop. Cancelling the awaiting task cancels the work where the engine can (a vLLM request is
aborted); the CancelledError is raised again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from gradwire.server.engines.openai import OpenAiEngine
from gradwire.server.engines.sampling import (
    ModelInfo,
    SampledTokens,
    SampleEvent,
    SampleRequest,
    SamplerLoad,
    TokenIds,
)
from gradwire.server.engines.scoring import Scores
from gradwire.server.engines.training import (
    CheckpointInfo,
    ForwardResult,
    FwdBwdResult,
    LossSpec,
    SleepMode,
    StepResult,
    TrainingBatch,
    TrainingConfig,
)
from gradwire.server.engines.weights import AdapterSpec, InFlightPolicy, MemoryReport, TensorChecksum, WeightManifest

Progress = Callable[[str], None]
"""Called from any thread with a line for people: what a slow start is doing."""


class Tokenizes(Protocol):
    """What an engine of a model knows of text."""

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        """Token ids of a text. Blocks (call it in a thread for long texts)."""

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        """Token ids of a conversation. Raises InvalidArgument when the model has no template."""


@runtime_checkable
class SamplerEngine(Tokenizes, Protocol):
    """A language model that samples (vLLM)."""

    @property
    def info(self) -> ModelInfo:
        """What is served. Valid after `start`."""

    @property
    def openai(self) -> OpenAiEngine:
        """The same engine by OpenAI's API. Valid after `start`."""

    async def start(self, progress: Progress) -> None:
        """Load the model and start the engine's processes; returns when it can sample."""

    def generate(self, request: SampleRequest) -> AsyncIterator[SampleEvent]:
        """Sample. Closing the iterator, or cancelling the task that awaits it, aborts the request."""

    @property
    def tokens(self) -> SampledTokens:
        """Tokens since the engine's start."""

    async def load(self) -> SamplerLoad:
        """What it has to do now. Answers between two steps; raises Unavailable when the engine is dead."""

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes."""

    async def pause(self, policy: InFlightPolicy) -> None:
        """Stop sampling: no token is produced until `resume`."""

    async def resume(self) -> None:
        """Sample again."""

    def check_manifest(self, manifest: WeightManifest) -> None:
        """Raises InvalidArgument, at `manifest` and `manifest[i]`, when it does not fit the model."""

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a shared-memory segment's tensors as weight version `version`.

        Call it paused. All or nothing: on an error the old weights and version go on.
        Resets the prefix cache. Raises InvalidArgument when the manifest does not fit the model.
        """

    async def weight_version(self) -> int:
        """Version of the model's own weights that sample now."""

    async def update_adapter(
        self, name: str, spec: AdapterSpec, segment: str, manifest: WeightManifest, version: int
    ) -> None:
        """Load a shared-memory segment's factors as adapter `name`, new or again, in version `version`.

        Tensors have the names of peft's files. Call it paused. All or nothing, as `update_weights`. Cached prefixes
        of an older version are never used again. Raises InvalidArgument when the manifest does not fit the model,
        FailedPrecondition when `config.max_loras` are held already.
        """

    async def remove_adapter(self, name: str) -> None:
        """Forget an adapter; its requests end with finish reason abort. Legal for one that is not there."""

    async def weight_norm(self, adapter: str = "") -> float:
        """L2 norm of all parameters, or of an adapter's; float64 accumulation, tied tensors once."""

    async def checksums(self, adapter: str = "") -> list[TensorChecksum]:
        """Checksums under Hugging Face names (fused tensors taken apart), tied tensors once; or of an adapter."""

    async def sleep(self, level: int) -> MemoryReport:
        """Give memory back. 1: weights can come back from the host; 2: weights are dropped."""

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`: all of it, or "weights" first and "kv_cache" later."""

    async def check_health(self) -> None:
        """Raises Unavailable when the engine is dead."""

    async def shutdown(self) -> None:
        """Stop the engine's processes; returns when they are gone."""


@runtime_checkable
class TrainingEngine(Protocol):
    """A language model that trains (DeepSpeed), in `config.num_workers` processes."""

    @property
    def config(self) -> TrainingConfig:
        """The configuration with its defaults."""

    @property
    def weight_version(self) -> int:
        """Version of the weights as they are: 0 at creation, +1 a step."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below this. Valid after `start`."""

    async def start(self, progress: Progress) -> None:
        """Start the workers and load the model."""

    async def fwd_bwd(self, batch: TrainingBatch, loss: LossSpec, *, outputs: bool = False) -> FwdBwdResult:
        """Add the gradients of a batch's loss to those accumulated. All or nothing on an error."""

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """Log-probs of a batch's own tokens under the weights as they are."""

    async def step(self, *, lr: float | None = None, max_grad_norm: float | None = None) -> StepResult:
        """Apply the accumulated gradients and clear them. FailedPrecondition when there are none."""

    async def zero_grad(self) -> int:
        """Drop the accumulated gradients; of how many `fwd_bwd` calls. Nothing else changes."""

    async def save_checkpoint(self, path: Path, *, name: str, merged: bool = False) -> CheckpointInfo:
        """Write model, optimizer, scheduler and random state to `path`, atomically.

        Of a job that trains an adapter: only that, or `merged` also the whole model with the adapter added.
        """

    async def load_checkpoint(self, path: Path) -> StepResult:
        """Continue from a checkpoint; drops accumulated gradients."""

    async def weight_manifest(self, dtype: str, *, merged: bool = False) -> WeightManifest:
        """Layout of `export_weights` in `dtype` ("F32", "BF16").

        Of a job that trains an adapter: the adapter's tensors, under the names of peft's files; or, `merged`,
        the whole model's with the adapter added.
        """

    async def export_weights(self, segment: str, manifest: WeightManifest, *, merged: bool = False) -> None:
        """Write the weights into a shared-memory segment made by the caller."""

    async def weight_norm(self) -> float:
        """L2 norm of what trains (all parameters, or an adapter), float64 accumulation, tied tensors once."""

    async def checksums(self, dtype: str, *, merged: bool = False, base: bool = False) -> list[TensorChecksum]:
        """Checksums of the weights as `export_weights` would write them in `dtype`.

        `base`, of a job that trains an adapter: of the whole model without it.
        """

    async def sleep(self, mode: SleepMode) -> MemoryReport:
        """Give memory back: what `mode` names sleeps, beside what sleeps already. All or nothing on an error.

        Calls that need what sleeps raise FailedPrecondition (TRAINER_ASLEEP): nothing wakes by itself.
        """

    async def wake(self) -> MemoryReport:
        """Undo `sleep`, all of it: every number is as it was. An error leaves it asleep and whole."""

    async def empty_cache(self) -> MemoryReport:
        """Give back memory that is held without need. Changes no number."""

    async def check_health(self) -> None:
        """Raises Unavailable when a worker is dead."""

    async def shutdown(self) -> None:
        """Stop the workers; returns when they are gone."""


@runtime_checkable
class LogProbEngine(Tokenizes, Protocol):
    """A language model that scores given tokens and does nothing else (vLLM, or DeepSpeed's forward pass).

    One call is answered by weights of one version: `update_weights` waits for the calls that began before it,
    and those that come later wait for it.
    """

    @property
    def info(self) -> ModelInfo:
        """What scores. Valid after `start`."""

    async def start(self, progress: Progress) -> None:
        """Start the engine's processes and load the model."""

    async def score(self, rows: Sequence[TokenIds], *, top_k: int = 0) -> Scores:
        """Log-probs of each row's tokens and, for `top_k` > 0, the most likely ones at each place.

        Raises InvalidArgument at `rows[i]`.
        """

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """As TrainingEngine's. InvalidArgument at `temperature` or `entropy` from an engine without them."""

    def check_manifest(self, manifest: WeightManifest) -> None:
        """Raises InvalidArgument, at `manifest` and `manifest[i]`, when it does not fit the model."""

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a shared-memory segment's tensors as weight version `version`. All or nothing."""

    async def weight_version(self) -> int:
        """Version of the weights that score now."""

    async def weight_norm(self) -> float:
        """L2 norm of all parameters, float64 accumulation, tied tensors once."""

    async def checksums(self) -> list[TensorChecksum]:
        """Checksums under Hugging Face names, in the engine's dtype, tied tensors once."""

    async def sleep(self, level: int) -> MemoryReport:
        """Give memory back, after the calls under way. 1: weights can come back; 2: weights are dropped.

        InvalidArgument at `level` from an engine that cannot.
        """

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`. InvalidArgument at `part` from an engine that wakes as a whole."""

    async def check_health(self) -> None:
        """Raises Unavailable when the engine is dead."""

    async def shutdown(self) -> None:
        """Stop the engine's processes; returns when they are gone."""
