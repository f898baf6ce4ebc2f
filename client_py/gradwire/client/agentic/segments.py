"""Rows of tokens that a run has beside the one of its trajectory: of prompts that were written anew on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradwire.client.types.shown import Brief

if TYPE_CHECKING:
    import torch


@dataclass(eq=False, repr=False)
class Segment(Brief):
    """A row of T tokens, exactly as the model read and sampled them.

    A trajectory is one row for as long as each prompt goes on from the last one's reply. Where one does not (thinking
    was taken out, history was summarised, the text encodes to other tokens than were sampled) a further row begins.
    """

    tokens: torch.Tensor
    """int [T]."""
    masks: torch.Tensor
    """[T], 1 where the model sampled the token in this row, else 0."""
    log_probs: torch.Tensor | None = None
    """float [T], of the tokens under the policy that sampled. None: not known."""
    versions: torch.Tensor | None = None
    """int [T], the weight version that sampled each. None: not known."""
    steps: torch.Tensor | None = None
    """int [T], the step that sampled each, -1 for none. None: not known."""

    def problem(self) -> str:
        """Why no training batch can hold it; "" when one can."""
        if self.tokens.dim() != 1 or not len(self.tokens):
            return f"its tokens have shape {tuple(self.tokens.shape)}; they must be [T], with T at least 1"
        if self.tokens.is_floating_point() or bool((self.tokens < 0).any()):
            return "its tokens must be token ids: integers from 0"
        for name in ("masks", "log_probs", "versions", "steps"):
            values = getattr(self, name)
            if values is not None and values.shape != self.tokens.shape:
                return f"its {name} have shape {tuple(values.shape)} for tokens of {tuple(self.tokens.shape)}"
        return "" if bool(((self.masks == 0) | (self.masks == 1)).all()) else "its masks must be 0 or 1"
