"""What training takes and returns. B rows of width S, or rows of differing lengths.

Knows: meaning, shapes and dtypes. Does not know: protobuf, or torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.client.types.sampling import Float32Array
from gradwire.client.types.shown import Brief

ArrayLike = Any
"""A numpy array, a torch tensor of any device, or a (nested) list of numbers."""
Column = Any
"""[B, S]: one array-like padded to a width; or B array-likes of one dimension, without padding."""
Rows = Float32Array | list[Float32Array]
"""float32 in the layout of the batch: [B, S], or a list of B arrays."""


class TrainingSleepMode(StrEnum):
    """What of a trainer sleeps."""

    UNSPECIFIED = "unspecified"
    """All."""
    ALL = "all"
    """Weights, master weights, gradients and optimizer state."""
    NON_LP = "non_lp"
    """All but the low-precision weights, which can still be synced."""
    LP_PARAMS = "lp_params"
    """Only the low-precision weights."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class TrainingBatch(Brief):
    """Rows of tokens with what the loss needs, on the shifted grid: labels = roll(input_ids, -1).

    Entry i of a column belongs to the prediction of token i + 1; a row's last entry is unused. All columns
    have the layout of `input_ids`: padded [B, S], or B rows of one dimension.
    """

    input_ids: Column
    """Token ids, integers. Required."""
    attention_mask: Column = None
    """1 where a token is real. Default: all are. Only with the padded layout."""
    loss_mask: Column = None
    """1 where the loss counts. Default: all real tokens but each row's last."""
    advantages: Column = None
    """float32; also [B], one a row, which is repeated over the row. Default: 1 everywhere."""
    old_log_probs_shifted: Column = None
    """Log-probs under the policy that sampled, float32. Default: those of this pass (on-policy)."""
    prox_logp_shifted: Column = None
    """Log-probs under the proximal policy, float32. Default: old_log_probs_shifted."""
    ref_log_probs_shifted: Column = None
    """Log-probs under the reference policy, float32. Required when the loss has a KL term."""
    versions: Column = None
    """Weight version that sampled each token, integers."""
    prompt_group_ids: Sequence[int] | npt.NDArray[np.int64] | None = None
    """Prompt that each row belongs to, [B] integers."""


TrainingBatchLike = TrainingBatch | Mapping[str, Column]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FwdBwdResult(Brief):
    """What a forward and backward pass found."""

    loss: float
    """The loss of the whole batch, however it was split."""
    num_loss_tokens: int
    """Tokens that counted."""
    num_tokens: int
    """Real tokens in the batch."""
    num_micro_batches: int
    """Parts that the batch was split into, on the busiest worker."""
    metrics: Mapping[str, float]
    """Measures by name: "clip_fraction", "approx_kl", ..."""
    weight_version: int
    """Version of the weights that the gradients are of."""
    log_probs_shifted: Rows | None
    """float32 in the batch's layout, 0 where there is none. None unless asked for."""
    entropy: Rows | None
    """float32, in nats. None unless asked for."""
    warnings: tuple[str, ...]
    """Things that the caller may not have meant."""
    queued_s: float
    """Wait for earlier operations of the job, in seconds."""
    run_s: float
    """The work itself, in seconds."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FwdNoGradResult(Brief):
    """What a forward pass found."""

    log_probs_shifted: Rows
    """float32 log-probs of the batch's own tokens in its layout, 0 where there is none."""
    entropy: Rows | None
    """float32, in nats. None unless asked for."""
    weight_version: int
    queued_s: float
    """Wait for earlier operations of the job, in seconds."""
    run_s: float
    """The work itself, in seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class StepResult(Brief):
    """What an optimizer step did."""

    grad_norm: float
    """L2 norm of the gradients before clipping."""
    learning_rate: float
    """The one that was used."""
    weight_version: int
    """The new version of the weights."""
    step: int
    """Optimizer steps of this job so far."""
    queued_s: float
    """Wait for earlier operations of the job, in seconds."""
    run_s: float
    """The work itself, in seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class ZeroGradResult(Brief):
    """There are no accumulated gradients."""

    num_dropped: int
    """`fwd_bwd` calls whose gradients were dropped; 0 when there were none."""
    queued_s: float
    """Wait for earlier operations of the job, in seconds."""
    run_s: float
    """The work itself, in seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class Checkpoint(Brief):
    """A checkpoint on the server's disk."""

    name: str
    path: str
    """Folder on the server."""
    export_path: str
    """Folder on the server that transformers and vLLM load; empty for an adapter saved without merge."""
    weight_version: int
    step: int
    """Optimizer steps made before it."""
    size_bytes: int
    created_at: datetime | None
    job_id: int
    """Job that wrote it."""
    adapter_path: str = ""
    """Folder on the server with the adapter of a LoRA job, as peft loads it; empty for other jobs."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadResult(Brief):
    """The job goes on from a checkpoint."""

    checkpoint: Checkpoint
    weight_version: int
    """The job's new version: versions never go back."""
    step: int
    """Optimizer steps as of the checkpoint."""
    queued_s: float
    run_s: float


@dataclass(frozen=True, slots=True, repr=False)
class DeletedCheckpoint(Brief):
    """A checkpoint is gone."""

    deleted: bool
    """False when there was none of that name."""
    freed_bytes: int
    """Size of the files that were deleted."""


@dataclass(frozen=True, slots=True, repr=False)
class UploadedBatch(Brief):
    """A batch that the server holds for a while."""

    batch_id: str
    """Names it in fwd_bwd and fwd_no_grad."""
    expires_at: datetime | None
    """The server forgets it then."""
