"""The tiny models in vLLM say, token for token, what they say in transformers.

vLLM runs in a process of its own (this file as a script), so that neither its threads nor its environment stay behind.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROMPTS = [list(b"Hello, world"), list(b"abc"), list(b"<xyz> 12345 and some more text")]
TOKENS = 100


@pytest.mark.slow
@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed")
@pytest.mark.parametrize("name", ["tiny", "tiny-untied"])
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",  # the model alone, without what gradwire adds to vLLM
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
    }
    output = subprocess.run(
        [sys.executable, __file__, name], env=os.environ | environment, stdout=subprocess.PIPE, check=True, timeout=240
    ).stdout
    both = json.loads(output.splitlines()[-1])
    assert both["vllm"] == both["transformers"]


def _print_both(name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from vllm import LLM, SamplingParams

    from gradwire.server.models import resolve_model

    folder = str(resolve_model(name))
    engine = LLM(folder, enforce_eager=True, dtype="float32", max_model_len=512)
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], greedy, use_tqdm=False)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.generation_config.eos_token_id = None
    expected = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        generated = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        expected.append(generated[0, len(prompt) :].tolist())
    print(json.dumps({"vllm": [list(o.outputs[0].token_ids) for o in outputs], "transformers": expected}))


if __name__ == "__main__":
    _print_both(sys.argv[1])
