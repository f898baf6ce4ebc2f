"""Words for a name that is not known: which was meant, and which there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """`what` 'name' is not known; did you mean ...? Known are ..."""
    choices = sorted(known)
    close = get_close_matches(str(name).lower(), choices, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{what} {name!r} is not known; {hint}Known: {', '.join(choices)}"


def check_names(
    what: str, names: Iterable[object], known: Collection[str], kind: type[TypeError | ValueError] = ValueError
) -> None:
    """Raises a `kind`, in the words of `unknown_name`, for the first of `names` that is not known."""
    for name in names:
        if name not in known:
            raise kind(unknown_name(what, name, known))
