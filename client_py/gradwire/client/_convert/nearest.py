"""Words for a name that is not known: which was meant, and which there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher

_ELSEWHERE = {
    "lr": "learning_rate",
    "r": "rank",
    "lora_r": "rank",
    "lora_rank": "rank",
    "lora_alpha": "alpha",
    "type": "name",
    "gradient_clipping": "max_grad_norm",
    "grad_clip": "max_grad_norm",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
}
"""Names that others use for the same things."""
_NEAR = 0.5


def unknown_name(what: str, name: object, known: Iterable[str], parts: Mapping[str, Collection[str]] = {}) -> str:
    """`what` 'name' is not known; did you mean ...? Known are ...

    `parts`: keys among `known` that hold further keys, with those: the name may belong there.
    """
    choices = sorted(known)
    return f"{what} {name!r} is not known; {_hint(str(name).lower(), choices, parts)}Known: {', '.join(choices)}"


def _hint(name: str, choices: list[str], parts: Mapping[str, Collection[str]]) -> str:
    usual = _ELSEWHERE.get(name, name)
    if usual in choices:
        return f"did you mean {usual!r}? "
    if places := [part for part, keys in parts.items() if usual in keys]:
        return f"{usual!r} is in {' or '.join(map(repr, places))}: {{{places[0]!r}: {{{usual!r}: ...}}}}. "
    nearest = max(choices, key=lambda choice: (_likeness(name, choice), choice), default="")
    return f"did you mean {nearest!r}? " if _likeness(name, nearest) >= _NEAR else ""


def _likeness(name: str, choice: str) -> float:
    """0 to 1: of the names as they stand, or with their words in order, whichever are more alike.

    Large and small letters are alike.
    """
    name, choice = name.lower(), choice.lower()
    pairs = ((choice, name), ("_".join(sorted(choice.split("_"))), "_".join(sorted(name.split("_")))))
    return max(SequenceMatcher(None, *pair).ratio() for pair in pairs)


def check_names(
    what: str, names: Iterable[object], known: Collection[str], kind: type[TypeError | ValueError] = ValueError
) -> None:
    """Raises a `kind`, in the words of `unknown_name`, for the first of `names` that is not known."""
    for name in names:
        if name not in known:
            raise kind(unknown_name(what, name, known))
