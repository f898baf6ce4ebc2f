"""How a command says on standard error why it failed: a line for a person, or with --json an object for a program.

Knows: what an error carries, and what to write on a command line where it tells what to write in Python. Does not
know: commands, or their exit codes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from gradwire.client.errors import GradwireError

_ON_THE_COMMAND_LINE = (
    ("tls=TLSConfig(root_certificates=...), on the command line --ca", "--ca FILE.pem"),
    (", or say which one that is: tls=TLSConfig(server_name=...)", ""),  # no flag says it
    ("(or tls=)", "(or --ca FILE.pem)"),
    ("tls= contradicts", "--ca contradicts"),
    ("Client(address) or the environment's GRADWIRE_ADDRESS", "--server ADDRESS or the environment's GRADWIRE_ADDRESS"),
    ("(the Python client: token=, or GRADWIRE_TOKEN)", "(--token-file FILE, or the environment's GRADWIRE_TOKEN)"),
    ("as api_key= or org_key=", "by --token-file FILE, or in the environment"),
    ("replace it, or undeploy it first", "pass --replace, or `gradwire undeploy` it first"),
    (
        "Deployment is not an LLM. Use get_action() or predict().",
        "the deployment is no language model; `gradwire agent run` reads its observations from standard input",
    ),
    ("a dict keyed by agent id", "a JSON object keyed by agent id"),
    ("Prompt at index 0 is empty.", "the prompt is empty"),
)
"""What errors say for Python, and what it is here."""
_OF_AGENT = (
    (
        "deployment_id: is needed:",
        "which deployment? Name it, or make one the current one with `gradwire agent run NAME --select`:",
    ),
    ("pass a longer timeout= (seconds)", "pass a longer --timeout SECONDS"),
)
_OF_OTHERS = (("; pass a longer timeout= (seconds)", ""),)  # the ten minutes that they wait are no flag


def report(command: str, error: BaseException, text: str = "", *, for_programs: bool) -> None:
    """Prints `gradwire COMMAND: TEXT`, or with `for_programs` one line of JSON (`error_object`).

    `text` is what a person reads; default: the error's own.
    """
    if for_programs:
        found = error_object(error, text)
        found["error"]["message"] = in_shell_words(command, found["error"]["message"])
        print(json_line(found, sys.stderr), file=sys.stderr)
    else:
        print(f"gradwire {command}: {in_shell_words(command, text or str(error))}", file=sys.stderr)


def in_shell_words(command: str, text: str) -> str:
    """`text`, where it names arguments and methods of the Python clients with the flags and commands in their place."""
    for python, here in (*_ON_THE_COMMAND_LINE, *(_OF_AGENT if command == "agent" else _OF_OTHERS)):
        text = text.replace(python, here)
    return text


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
