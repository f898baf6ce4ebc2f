"""Log-probs and entropy of chosen tokens, without ever holding all logits.

The logits of a vocabulary of 50,000 are the largest tensor of a training step. They are computed for
scored positions only, in chunks; the softmax is kept for the backward pass where it fits, and computed
again where it does not. Knows: hidden states and the output matrix. Does not know: losses or rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

CHUNK_BYTES = 64 << 20  # of fp32 logits at a time
KEEP_BYTES = 512 << 20  # of softmax kept between forward and backward


class LogProbHead(nn.Module):
    """The output matrix of a causal language model, giving log-probs instead of logits."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, hidden: Tensor, labels: Tensor, temperature: float) -> Tensor:
        """hidden [N, H], labels int64 [N] -> [2, N]: log-probs and entropy of softmax(logits / temperature).

        float32, or float64 where hidden is. One tensor and not two: ZeRO-3 counts a module's outputs, and
        loses count, and then its ranks, when a loss leaves one of them unused.
        """
        return torch.stack(_ScoredLogits.apply(hidden, self.weight, self.bias, labels, temperature))


class _ScoredLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        log_probs = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        entropy = torch.empty_like(log_probs)
        keep = any(ctx.needs_input_grad) and len(hidden) * weight.shape[0] * wide.itemsize <= KEEP_BYTES
        kept = []
        for part in _chunks(len(hidden), weight.shape[0], wide):
            softmax, log_probs[part], entropy[part] = _score(hidden[part], weight, bias, labels[part], temperature)
            if keep:
                kept.append(softmax)
        ctx.save_for_backward(hidden, weight, bias, labels, entropy)
        ctx.temperature, ctx.kept = temperature, kept
        return log_probs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, entropy = ctx.saved_tensors
        wide = entropy.dtype
        by_log_prob, by_entropy = gradients
        grad_hidden = torch.empty_like(hidden)
        # A frozen matrix (below an adapter) needs no gradient: it would be the largest product of the backward pass.
        _, trains, bias_trains, *_ = ctx.needs_input_grad
        grad_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if trains else None
        grad_bias = torch.zeros(bias.shape, dtype=wide, device=bias.device) if bias_trains else None
        for index, part in enumerate(_chunks(len(hidden), weight.shape[0], wide)):
            if ctx.kept:
                softmax, ctx.kept[index] = ctx.kept[index], None  # used up: it becomes the gradient below
            else:
                softmax = _score(hidden[part], weight, bias, labels[part], ctx.temperature)[0]
            grad_logits = _grad_logits(
                softmax,
                labels[part],
                torch.zeros_like(entropy[part]) if by_log_prob is None else by_log_prob[part],
                None if by_entropy is None else by_entropy[part],
                entropy[part],
                ctx.temperature,
            )
            narrow = grad_logits.to(weight.dtype)
            grad_hidden[part] = narrow @ weight
            if grad_weight is None:
                pass
            elif wide == weight.dtype:
                grad_weight.addmm_(narrow.t(), hidden[part])
            else:
                grad_weight += narrow.t() @ hidden[part]
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            None,
            None,
        )


@torch.no_grad()
def most_likely(hidden: Tensor, head: LogProbHead, k: int) -> tuple[Tensor, Tensor]:
    """The k most likely tokens after each of hidden [N, H]: ids int32 and log-probs float32, [N, k] each."""
    ids = torch.empty((len(hidden), k), dtype=torch.int32, device=hidden.device)
    values = torch.empty((len(hidden), k), dtype=torch.float32, device=hidden.device)
    for part in _chunks(len(hidden), head.weight.shape[0], torch.float32):
        logits = torch.nn.functional.linear(hidden[part], head.weight, head.bias).float()
        top, found = logits.topk(k, dim=-1)
        ids[part], values[part] = found.to(torch.int32), top - logits.logsumexp(-1, keepdim=True)
    return ids, values


def _chunks(rows: int, vocabulary: int, dtype: torch.dtype) -> Iterator[slice]:
    size = max(1, CHUNK_BYTES // (vocabulary * dtype.itemsize))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def _score(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """softmax [n, V], log-probs [n], entropy [n] of a chunk."""
    logits = torch.nn.functional.linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(hidden.dtype, torch.float32))
    if temperature != 1.0:
        logits = logits / temperature
    norm = logits.logsumexp(-1)
    log_probs = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - norm
    softmax = (logits - norm.unsqueeze(-1)).exp_()
    # H = norm - sum p z. Where p underflows to 0, so does its term.
    entropy = norm - torch.linalg.vecdot(softmax, logits)
    return softmax, log_probs, entropy


def _grad_logits(
    softmax: Tensor,
    labels: Tensor,
    by_log_prob: Tensor,
    by_entropy: Tensor | None,
    entropy: Tensor,
    temperature: float,
) -> Tensor:
    """d/dz of g lp + h H with z = logits: ((onehot - p) g - p (log p + H) h) / temperature. Overwrites softmax."""
    scale = -by_log_prob
    if by_entropy is not None and bool(by_entropy.any()):
        surprise = torch.xlogy(softmax, softmax) * by_entropy.unsqueeze(-1)
        softmax.mul_((scale - by_entropy * entropy).unsqueeze(-1)).sub_(surprise)
    else:
        softmax.mul_(scale.unsqueeze(-1))
    softmax.scatter_add_(-1, labels.unsqueeze(-1), by_log_prob.unsqueeze(-1))
    if temperature != 1.0:
        softmax.div_(temperature)
    return softmax
