"""The chunked head against plain log_softmax: values and gradients, kept and computed again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradwire.server.engines.deepspeed import head as module
from gradwire.server.engines.deepspeed.head import LogProbHead


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "recomputed"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("use_entropy", [True, False])
def test_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, keep: bool, temperature: float, with_bias: bool, use_entropy: bool
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 3 * 11 * 8)  # three rows a chunk
    monkeypatch.setattr(module, "KEEP_BYTES", 1 << 20 if keep else 0)
    torch.manual_seed(0)
    hidden = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    weight = nn.Parameter(torch.randn(11, 5, dtype=torch.float64) * 3)
    bias = nn.Parameter(torch.randn(11, dtype=torch.float64)) if with_bias else None
    labels = torch.randint(0, 11, (8,))
    by_log_prob, by_entropy = torch.randn(2, 8, dtype=torch.float64) * torch.tensor([[1.0], [float(use_entropy)]])
    inputs = [hidden, weight] + ([bias] if bias is not None else [])

    scores = (nn.functional.linear(hidden, weight, bias) / temperature).log_softmax(-1)
    expected = torch.stack(
        (scores.gather(-1, labels[:, None])[:, 0], -(scores.exp() * scores).sum(-1)),
    )
    wanted = torch.autograd.grad((expected * torch.stack((by_log_prob, by_entropy))).sum(), inputs)

    got = LogProbHead(weight, bias)(hidden, labels, temperature)
    found = torch.autograd.grad((got * torch.stack((by_log_prob, by_entropy))).sum(), inputs)
    assert torch.allclose(got, expected, atol=1e-12)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_certain_token_has_no_entropy_and_finite_gradients() -> None:
    hidden = torch.tensor([[1000.0]], requires_grad=True)
    head = LogProbHead(nn.Parameter(torch.tensor([[1.0], [-1.0]])), None)
    log_prob, entropy = head(hidden, torch.tensor([0]), 1.0)
    (log_prob + entropy).sum().backward()
    assert float(entropy.detach()) == 0.0
    assert hidden.grad is not None
    assert bool(hidden.grad.isfinite().all())
