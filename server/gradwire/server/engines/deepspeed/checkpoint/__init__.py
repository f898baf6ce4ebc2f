"""Checkpoints on disk: written whole or not at all, never changed, checked before they are used.

    DIR/checkpoint.json       steps, version, files with sizes and SHA-256; written last
    DIR/hf/                   config, tokenizer, model.safetensors: what from_pretrained and vLLM load
    DIR/adapter/              of a job that trains an adapter: what peft loads; hf/ is then the merged model, if wanted
    DIR/optimizer.safetensors master/NAME (bf16 jobs), exp_avg/NAME, exp_avg_sq/NAME or momentum_buffer/NAME
    DIR/random.safetensors    random states of rank 0

Only safetensors and JSON: nothing in a checkpoint can run code. Saving and loading are collectives; rank 0
writes, one tensor in memory at a time. A checkpoint does not depend on ZeRO stage or number of ranks.
"""

from __future__ import annotations

from gradwire.server.engines.deepspeed.checkpoint.loading import load_checkpoint
from gradwire.server.engines.deepspeed.checkpoint.saving import save_checkpoint

__all__ = ["load_checkpoint", "save_checkpoint"]
