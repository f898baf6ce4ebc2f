"""The blocking client has the async one's surface: same names, parameters, defaults and results."""

from __future__ import annotations

import inspect

import pytest

from gradwire.client.arctic import (
    ArcticRLClient,
    ArcticRLGrpcClient,
    ArcticRLHTTPClient,
    ArcticRLRayClient,
    ArcticRLStream,
    SyncArcticRLClient,
    SyncArcticRLStream,
)

DOCUMENTED = {
    "fwd_bwd": "(self, batch, processing=None, *, request_id=None)",
    "fwd_no_grad": "(self, batch, reference_model=False, processing=None)",
    "step": "(self, lr=None, *, max_grad_norm=None, request_id=None)",
    "save_checkpoint": "(self, name='', *, request_id=None)",
    "generate": "(self, prompts, sampling_params=None, *, min_weight_version=0)",
    "log_probs": "(self, prompts, completions=None, top_k=1)",
    "sync_weights": "(self, cuda_ipc=False, low_memory=False, *, request_id=None)",
    "weight_norm": "(self)",
    "sleep_inference": "(self, level=1)",
    "wake_inference": "(self, tags=None)",
    "reset_prefix_cache": "(self)",
    "sleep_training": "(self, mode='all')",
    "wake_training": "(self)",
    "empty_training_cache": "(self)",
    "sleep_log_prob": "(self)",
    "wake_log_prob": "(self)",
    "shutdown": "(self)",
}


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def bare(function: object) -> str:
    """The signature without annotations."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("client", [ArcticRLGrpcClient, ArcticRLHTTPClient, ArcticRLRayClient])
def test_the_three_clients_have_the_documented_methods(client: type[ArcticRLClient]) -> None:
    assert {name: bare(getattr(client, name)) for name in DOCUMENTED} == DOCUMENTED
    assert all(inspect.iscoroutinefunction(getattr(client, name)) for name in DOCUMENTED)
    assert public(client).keys() == public(ArcticRLClient).keys()


def test_the_twin_has_every_method() -> None:
    ours, theirs = public(SyncArcticRLClient), public(ArcticRLClient)
    assert ours.keys() == theirs.keys() - {"protocol"}
    for name, member in ours.items():
        if inspect.isfunction(member):
            assert bare(member) == bare(theirs[name]), name
            assert not inspect.iscoroutinefunction(member)
    assert public(SyncArcticRLStream).keys() == public(ArcticRLStream).keys()
