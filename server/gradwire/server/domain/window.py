"""Which messages of a conversation fit into the model's context.

Whole turns are dropped from the prompt, the oldest first; the store keeps them. A turn is a user's message and
whatever follows it up to the next one, so a prompt never begins with a reply to something that is not there. System
messages at the head stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradwire.server.domain.sessions import Message
from gradwire.server.errors import InvalidArgument

TokenCounter = Callable[[Sequence[Message]], int]
"""Tokens of a prompt made of these messages: of the whole, since a chat template is not a sum."""


@dataclass(frozen=True, slots=True)
class Window:
    """What goes into the prompt."""

    messages: tuple[Message, ...]
    num_dropped_messages: int
    num_tokens: int


def fit(messages: Sequence[Message], count_tokens: TokenCounter, budget: int) -> Window:
    """The longest end of the conversation, with its system messages, that is at most `budget` tokens.

    `count_tokens` is called about log2(turns) times; it must not shrink when an older turn is added. Raises
    InvalidArgument, PROMPT_TOO_LONG, when not even the last turn fits.
    """
    head = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    starts = [i for i in range(head, len(messages)) if messages[i].role == "user"]
    if not starts:
        raise InvalidArgument.at("messages", "hold no message of a user")
    system = tuple(messages[:head])

    def window(first_turn: int) -> Window:
        start = starts[first_turn]
        kept = system + tuple(messages[start:])
        return Window(kept, start - head, count_tokens(kept))

    best = window(0)  # most conversations fit as they are
    if best.num_tokens <= budget:
        return best
    # Turns from `high` on fit, those from `low` on do not; the last turn has yet to prove that it does.
    low, high = 0, len(starts) - 1
    best = window(high) if high else best
    if best.num_tokens > budget:
        raise InvalidArgument.at(
            "prompt",
            f"the last message is {best.num_tokens} tokens with what must stand before it, and the context has room "
            f"for {budget}",
            reason="PROMPT_TOO_LONG",
        )
    while high - low > 1:
        middle = (low + high) // 2
        tried = window(middle)
        if tried.num_tokens <= budget:
            high, best = middle, tried
        else:
            low = middle
    return best
