"""SyncArcticRLClient: every method of an ArcticRL client, for plain code.

Knows: blocking. A test holds its signatures against the async ones. Works inside a running event loop too.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from gradwire.client._core.loop import shared_loop
from gradwire.client.arctic.attach import ServerState
from gradwire.client.arctic.client import create_arctic_rl_client
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.results import Result
from gradwire.client.arctic.streams import ArcticRLStream
from gradwire.client.arctic.warning import called_from, here
from gradwire.client.types.sampling import Prompt, Prompts

T = TypeVar("T")


def _wait(work: Coroutine[Any, Any, T]) -> T:
    return shared_loop().run(called_from(here(), work))


class SyncArcticRLStream:
    """As ArcticRLStream, read with a plain `for`."""

    def __init__(self, stream: ArcticRLStream) -> None:
        self._async = stream

    def __iter__(self) -> Iterator[Result]:
        try:
            while (delta := _wait(self._next())) is not None:
                yield delta
        finally:
            self.cancel()

    async def _next(self) -> Result | None:
        try:
            return await self._async.__anext__()
        except StopAsyncIteration:
            return None

    def result(self) -> Result:
        """As `ArcticRLStream.result`."""
        return _wait(self._async.result())

    def cancel(self) -> None:
        """As `ArcticRLStream.cancel`."""
        _wait(self._async.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class SyncArcticRLClient:
    """The blocking twin of the client that `create_arctic_rl_client` makes; each method is that of its name."""

    def __init__(
        self, config: ArcticRLClientConfig | Mapping[str, Any], arctic_rl_server_state: ServerState | None = None
    ) -> None:
        self._async = create_arctic_rl_client(config, arctic_rl_server_state)

    @property
    def config(self) -> ArcticRLClientConfig:
        """The configuration that the client was made from."""
        return self._async.config

    @property
    def training_job_id(self) -> int:
        """ValueError when there is no training job."""
        return self._async.training_job_id

    @property
    def sampling_job_id(self) -> int:
        """ValueError when there is no sampling job."""
        return self._async.sampling_job_id

    @property
    def log_prob_job_id(self) -> int:
        """ValueError when there is no log-prob job."""
        return self._async.log_prob_job_id

    def reconnect_config(self, *, include_token: bool = False) -> ArcticRLClientConfig:
        """What another process needs to use the same jobs."""
        return self._async.reconnect_config(include_token=include_token)

    def get_server_state(self) -> ServerState:
        """Where the server is, for a further client."""
        return self._async.get_server_state()

    def fwd_bwd(
        self,
        batch: Mapping[str, Any],
        processing: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
    ) -> Result:
        """Forward and backward; adds to the accumulated gradients."""
        return _wait(self._async.fwd_bwd(batch, processing, request_id=request_id))

    def fwd_no_grad(
        self,
        batch: Mapping[str, Any],
        reference_model: bool = False,
        processing: Mapping[str, Any] | None = None,
    ) -> Result:
        """Forward only."""
        return _wait(self._async.fwd_no_grad(batch, reference_model, processing))

    def step(
        self, lr: float | None = None, *, max_grad_norm: float | None = None, request_id: str | None = None
    ) -> Result:
        """One optimizer step."""
        return _wait(self._async.step(lr, max_grad_norm=max_grad_norm, request_id=request_id))

    def zero_grad(self, *, request_id: str | None = None) -> Result:
        """Drops the accumulated gradients."""
        return _wait(self._async.zero_grad(request_id=request_id))

    def save_checkpoint(self, name: str = "", *, request_id: str | None = None) -> Result:
        """Writes a checkpoint."""
        return _wait(self._async.save_checkpoint(name, request_id=request_id))

    def load_checkpoint(self, checkpoint: str | Mapping[str, Any], *, request_id: str | None = None) -> Result:
        """Goes on from a checkpoint."""
        return _wait(self._async.load_checkpoint(checkpoint, request_id=request_id))

    def sleep_training(self, mode: str = "all") -> Result:
        """Gives the trainer's memory back."""
        return _wait(self._async.sleep_training(mode))

    def wake_training(self) -> Result:
        """Undoes `sleep_training`."""
        return _wait(self._async.wake_training())

    def empty_training_cache(self) -> Result:
        """Gives back memory that is held without use."""
        return _wait(self._async.empty_training_cache())

    def generate(
        self,
        prompts: Prompts,
        sampling_params: Mapping[str, Any] | None = None,
        *,
        min_weight_version: int = 0,
    ) -> list[Result]:
        """Completions of prompts."""
        return _wait(self._async.generate(prompts, sampling_params, min_weight_version=min_weight_version))

    def generate_stream(
        self,
        prompt: Prompt,
        sampling_params: Mapping[str, Any] | None = None,
        *,
        min_weight_version: int = 0,
    ) -> SyncArcticRLStream:
        """Completions of one prompt as they come."""
        return SyncArcticRLStream(
            self._async.generate_stream(prompt, sampling_params, min_weight_version=min_weight_version)
        )

    def log_probs(self, prompts: Prompts, completions: Prompts | None = None, top_k: int = 1) -> Result:
        """Log-probs of given text under the log-prob job's weights."""
        return _wait(self._async.log_probs(prompts, completions, top_k))

    def sync_weights(
        self, cuda_ipc: bool = False, low_memory: bool = False, *, request_id: str | None = None
    ) -> Result:
        """Carries the trainer's weights into the sampler."""
        return _wait(self._async.sync_weights(cuda_ipc, low_memory, request_id=request_id))

    def weight_norm(self) -> Result:
        """Norms of both sides' weights, and which tensors differ."""
        return _wait(self._async.weight_norm())

    def sleep_inference(self, level: int = 1) -> Result:
        """Gives the sampler's memory back."""
        return _wait(self._async.sleep_inference(level))

    def wake_inference(self, tags: Sequence[str] | None = None) -> Result:
        """Undoes `sleep_inference`."""
        return _wait(self._async.wake_inference(tags))

    def reset_prefix_cache(self) -> Result:
        """Forgets cached prefixes."""
        return _wait(self._async.reset_prefix_cache())

    def sleep_log_prob(self) -> Result:
        """Gives the memory of the log-prob job back."""
        return _wait(self._async.sleep_log_prob())

    def wake_log_prob(self) -> Result:
        """Undoes `sleep_log_prob`."""
        return _wait(self._async.wake_log_prob())

    def shutdown(self) -> None:
        """Destroys the jobs, and stops a server of its own."""
        _wait(self._async.shutdown())

    def close(self) -> None:
        """Disconnects; jobs stay."""
        _wait(self._async.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _wait(self._async.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"Sync{self._async!r}"
