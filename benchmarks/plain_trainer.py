"""The other side of `training.py`: GRPO as one writes it with DeepSpeed and nothing else.

The same model, optimizer, threads, clipping and loss; padded rows, micro-batches of some rows, logits of every
position.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.batch import Batch, demo_batch
from benchmarks.child import obey

CLIP = 0.2


class PlainTrainer:
    """A model in DeepSpeed's engine."""

    def __init__(self, folder: str, lr: float) -> None:
        os.environ.update(
            DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29631"
        )
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        import deepspeed
        import deepspeed.ops
        from transformers import AutoModelForCausalLM

        # It is compiled at first use, for half a minute, and serves collectives, of which there are none here.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed("gloo")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.0, fused=True)
        self._engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": 1,
                "managed_gradient_accumulation": False,
                "zero_optimization": {"stage": 0},
                "gradient_clipping": 1.0,
                "zero_allow_untested_optimizer": True,
                "steps_per_print": 1 << 60,
            },
        )

    def train(self, batch: Batch, micro_batch: int) -> dict[str, float]:
        """fwd_bwd and step of a batch; seconds, CPU seconds, loss and gradient norm."""
        wall, cpu = time.perf_counter(), time.process_time()
        ids, attention = _padded(batch.input_ids, torch.int64), _ones(batch.input_ids)
        mask, advantages = _padded(batch.loss_mask, torch.float32), _padded(batch.advantages, torch.float32)
        total, loss_sum = float(mask.sum()), 0.0
        for start in range(0, len(ids), micro_batch):
            part = slice(start, start + micro_batch)
            logits = self._engine(input_ids=ids[part], attention_mask=attention[part], use_cache=False).logits
            log_probs = logits[:, :-1].log_softmax(-1).gather(-1, ids[part, 1:, None])[..., 0]
            loss = _grpo(log_probs, advantages[part, :-1], mask[part, :-1]) / total
            self._engine.backward(loss)
            loss_sum += float(loss.detach())
        gradients = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))  # DeepSpeed does not tell it at stage 0
        self._engine.step()
        return {
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "loss": loss_sum,
            "grad_norm": norm,
        }


def _grpo(log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """On-policy: the ratio is 1, and only its gradient counts."""
    ratio = (log_probs - log_probs.detach()).exp()
    losses = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP, 1 + CLIP))
    return (losses * mask).sum()


def _padded(rows: Any, dtype: torch.dtype) -> Tensor:
    whole = np.zeros((len(rows), max(map(len, rows))), rows[0].dtype)
    for target, row in zip(whole, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(whole).to(dtype)


def _ones(rows: Any) -> Tensor:
    return _padded([np.ones(len(row), np.int64) for row in rows], torch.int64)


def main() -> None:
    """Command line: model folder, learning rate, prompts, group, completion tokens, rows of a micro-batch."""
    folder, lr, *sizes = sys.argv[1:]
    prompts, group, tokens, micro_batch = map(int, sizes)
    trainer = PlainTrainer(folder, float(lr))
    batch = demo_batch(prompts, group, tokens)
    obey(lambda command: trainer.train(batch.head(command["rows"]), micro_batch))


if __name__ == "__main__":
    main()
