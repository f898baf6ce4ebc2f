"""vLLM's log, where it says one thing many times."""

from __future__ import annotations

import logging

_DEATH = "EngineDeadError"


class _Deaths(logging.Filter):
    """vLLM writes its whole stack for each request of an engine that died: the message will do."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if type(error).__name__ == _DEATH:
            record.msg, record.args = f"{record.getMessage()} The engine died.", ()
            record.exc_info = record.exc_text = None
        return True


_deaths = _Deaths()


def tell_deaths_in_a_line() -> None:
    """After each start of an engine, in which vLLM sets up its logging anew."""
    for handler in logging.getLogger("vllm").handlers:
        handler.addFilter(_deaths)
