"""How a command says on standard error why it failed: a line for a person, or with --json an object for a program.

Knows: what an error carries. Does not know: commands, or their exit codes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from gradwire.client.errors import GradwireError


def report(command: str, error: BaseException, text: str = "", *, for_programs: bool) -> None:
    """Prints `gradwire COMMAND: TEXT`, or with `for_programs` one line of JSON (`error_object`).

    `text` is what a person reads; default: the error's own.
    """
    shown = text or str(error)
    if for_programs:
        print(json_line(error_object(error, text), sys.stderr), file=sys.stderr)
    else:
        print(f"gradwire {command}: {shown}", file=sys.stderr)


def json_line(value: Any, stream: TextIO) -> str:
    """JSON that `stream` can write: Python's own escapes of what it cannot, as in "\\xe9", are none of JSON's."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def error_object(error: BaseException, text: str = "") -> dict[str, Any]:
    """`{"error": {...}}`: message; status (gRPC's, like "NOT_FOUND"), reason, field_violations, retry_after (seconds)
    and correlation_id as the server said them, null or empty where no server was asked or it said none."""
    behind = error if isinstance(error, GradwireError) else error.__cause__
    of_server = behind if isinstance(behind, GradwireError) else None
    return {
        "error": {
            "message": text or (of_server.message if of_server else str(error)),
            "status": of_server.code if of_server else None,
            "reason": (of_server.reason if of_server else "") or None,
            "field_violations": [
                {"field": field, "description": description}
                for field, description in (of_server.field_violations if of_server else ())
            ],
            "retry_after": of_server.retry_after if of_server else None,
            "correlation_id": of_server.correlation_id if of_server else None,
        }
    }
