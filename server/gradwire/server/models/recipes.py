"""What a recipe of a built-in model is, and what one raises."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Recipe:
    """How to make one model folder."""

    name: str
    summary: str
    revision: str
    """Part of the cached folder's path. Raise it whenever `build` writes other bytes than before."""
    build: Callable[[Path], None]
    """Fills an empty folder with config, weights and tokenizer. May raise `RecipeError`."""


class RecipeError(RuntimeError):
    """A built-in model cannot be built here; the text says what is missing and how to get it."""
