"""One rank of a log-prob job: a model that is only run forward.

Knows: the model, micro-batches, new weights from a segment. Does not know: gRPC, processes, deepspeed's engine:
each rank holds a whole model without gradients, so there is nothing that the engine could share out. Every
method is a collective.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gradwire.server.engines.deepspeed.attention import PackedLayout
from gradwire.server.engines.deepspeed.backend import start_forward_only
from gradwire.server.engines.deepspeed.forward import Floats, forward_rows
from gradwire.server.engines.deepspeed.head import most_likely
from gradwire.server.engines.deepspeed.model import PolicyModel
from gradwire.server.engines.deepspeed.packing import MicroBatch, plan
from gradwire.server.engines.deepspeed.rank_loss import RankBatch
from gradwire.server.engines.deepspeed.residency import SCORER, Residency
from gradwire.server.engines.deepspeed.storages import model_storages
from gradwire.server.engines.deepspeed.tensorfile import DTYPES
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import TrainerPart, TrainingConfig
from gradwire.server.engines.weights import WeightManifest
from gradwire.server.errors import FieldViolation, InvalidArgument

Tops = tuple[npt.NDArray[np.int32], Floats]


class Scorer:
    """One rank. `weight_version` is 0 until the first `load_weights`."""

    def __init__(self, config: TrainingConfig, *, rank: int, world: int, master_port: int) -> None:
        self.config = config
        self.policy, self.ranks = start_forward_only(config, rank=rank, world=world, master_port=master_port)
        self.weight_version = 0
        self.residency = Residency(
            self.ranks,
            {TrainerPart.MODEL: lambda: model_storages(self.policy)},
            of=SCORER,
        )

    def fwd_no_grad(self, batch: RankBatch, temperature: float) -> tuple[Floats, Floats]:
        """Log-probs and entropy of the rows' own tokens where the mask is set, 0 elsewhere."""
        return forward_rows(self.policy, self.ranks, self._plan(batch), batch, temperature)

    def score(self, batch: RankBatch, top_k: int) -> tuple[Floats, Tops]:
        """Log-probs [T] at temperature 1, and the `top_k` most likely tokens of each scored entry.

        Token ids int32 and log-probs float32 [T, top_k], most likely first; -1 and -inf elsewhere.
        """
        ids = np.full((len(batch.mask), top_k), -1, np.int32)
        values = np.full((len(batch.mask), top_k), -np.inf, np.float32)

        latest: list[Tensor] = []

        def model(
            tokens: Tensor, positions: Tensor, packing: PackedLayout, hidden: Tensor, labels: Tensor, temperature: float
        ) -> Tensor:
            states = self.policy.hidden_states(tokens, positions, packing).index_select(0, hidden)
            latest[:] = most_likely(states, self.policy.head, top_k)
            scored: Tensor = self.policy.head(states, labels, temperature)
            return scored

        def keep(part: MicroBatch) -> None:
            ids[part.source], values[part.source] = (found.cpu().numpy() for found in latest)

        log_probs, _ = forward_rows(model, self.ranks, self._plan(batch), batch, 1.0, also=keep)
        return log_probs, (ids, values)

    def _plan(self, batch: RankBatch) -> list[MicroBatch]:
        return plan(batch.input_ids, batch.row_offsets, batch.mask, budget=self.config.max_tokens_per_micro_batch)

    @torch.no_grad()
    def load_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Take a segment's tensors as weight version `version`, converted to the model's dtype.

        All or nothing on all ranks: everything is checked before anything is copied. Raises InvalidArgument when
        the segment is gone or too small, or the manifest does not list this model's tensors.
        """
        state = PlainWeights(self.policy)
        source = self.ranks.attempt(lambda: _checked(state, segment, manifest))
        with source, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is only read
            for spec in manifest.tensors:
                data = torch.from_numpy(source.array(spec.offset, spec.nbytes)).view(DTYPES[spec.dtype])
                state.parameters[spec.name].copy_(data.view(spec.shape))
        self.weight_version = version


class PlainWeights:
    """Parameters that every rank holds whole; the reading half of parameters.FullState."""

    def __init__(self, policy: PolicyModel) -> None:
        self.parameters: dict[str, nn.Parameter] = policy.hf_parameters()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a parameter."""
        return tuple(self.parameters[name].shape)

    @contextmanager
    def weight(self, name: str) -> Iterator[Tensor]:
        """A parameter, for reading."""
        yield self.parameters[name].detach()


def _checked(state: PlainWeights, segment: str, manifest: WeightManifest) -> SharedSegment:
    """The segment, when every tensor of the model lies in it."""
    bad = []
    names = [spec.name for spec in manifest.tensors]
    if sorted(names) != sorted(state.parameters):
        wrong = sorted(set(names) ^ set(state.parameters)) or ["a name that comes twice"]
        bad.append(FieldViolation("manifest", f"does not list this model's tensors: {', '.join(wrong[:5])} differ"))
    for index, spec in enumerate(manifest.tensors):
        if spec.name in state.parameters and tuple(spec.shape) != state.shape(spec.name):
            what = f"{spec.name} is {tuple(spec.shape)}, the model's is {state.shape(spec.name)}"
            bad.append(FieldViolation(f"manifest[{index}]", what))
        elif spec.dtype not in DTYPES or spec.nbytes != math.prod(spec.shape) * DTYPES[spec.dtype].itemsize:
            what = f"{spec.name}: {spec.nbytes} bytes of {spec.dtype} do not make {tuple(spec.shape)}"
            bad.append(FieldViolation(f"manifest[{index}]", what))
        elif not 0 <= spec.offset <= spec.offset + spec.nbytes <= manifest.total_bytes:
            bad.append(FieldViolation(f"manifest[{index}]", f"{spec.name} lies outside the segment"))
    if bad:
        raise InvalidArgument(bad[:20], reason="MANIFEST_MISMATCH")
    opened = SharedSegment.attach(segment)
    if opened.size < manifest.total_bytes:
        opened.close()
        raise InvalidArgument.at("segment", f"has {opened.size} bytes, the manifest needs {manifest.total_bytes}")
    return opened
