"""How much work a JSON schema is, before a grammar is made of it.

vLLM makes grammars in the server's process first, one at a time. Two forms of schema cost far more than their length:
items written out one by one (a million of them in llguidance: 20 s and 1.2 GB), and xgrammar's rule for each property
and each count of properties.
"""

from __future__ import annotations

import json
from typing import Any

MAX_WORK = 20_000  # at most 0.2 s and 50 MB
TOO_MUCH = (
    "holds schemas that are too much work: minItems, maxItems, and properties times minProperties or maxProperties, "
    f"add up to {{work}}; at most {MAX_WORK}"
)


def problem(value: Any) -> str:
    """What is wrong with JSON that holds schemas anywhere: an object, or the text of one. Empty if nothing is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except RecursionError:
            return "is nested too deep"
        except ValueError:
            return ""  # whoever reads it says more
    work = _work(value)
    return TOO_MUCH.format(work=work) if work > MAX_WORK else ""


def grammar_problem(text: str) -> str:
    """The same of a grammar: llguidance's dialect may hold schemas."""
    return "holds a schema (%json); give the schema itself instead" if "%json" in text else ""


def _work(value: Any) -> int:
    work = 0
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, list):
            left += here
        elif isinstance(here, dict):
            left += here.values()
            work += max(_count(here, "minItems"), _count(here, "maxItems"))
            properties = here.get("properties")
            if isinstance(properties, dict):
                work += len(properties) * max(_count(here, "minProperties"), _count(here, "maxProperties"))
    return work


def _count(schema: dict[str, Any], name: str) -> int:
    value = schema.get(name)
    if isinstance(value, float) and abs(value) < float("inf"):
        value = int(value)
    return value if isinstance(value, int) and value > 0 else 0
