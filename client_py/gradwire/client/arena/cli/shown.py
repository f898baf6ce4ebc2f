"""How results look: tables with rich where it is installed and a person looks, else plain text; or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from gradwire.client.arena.models import SessionDetail, SessionInfo, StatusResponse
from gradwire.client.reporting import json_line


def as_json(value: Any) -> None:
    """One line of JSON, at once."""
    print(json_line(value, sys.stdout), flush=True)


def status(found: StatusResponse, for_programs: bool) -> None:
    """What a deployment is."""
    if for_programs:
        as_json(found.model_dump(mode="json"))
        return
    agent = found.agent
    rows = [("deployment", found.deployment_id), ("instance", found.instance_id)]
    if agent is not None:
        kind = "language model" if agent.llm else "supervised model" if agent.supervised else "policy"
        rows += [("kind", kind), ("name", agent.algo), ("agents", ", ".join(agent.agent_ids))]
        rows += [("recurrent", "yes" if agent.recurrent else ""), ("masks", "yes" * agent.supports_action_mask)]
        rows += [
            (name, json.dumps(space) if space else "")
            for name, space in (("observations", agent.observation_space), ("actions", agent.action_space))
        ]
    if found.weight_version or found.memory_scope:  # neither is told to whoever has no token
        rows += [("weights", f"version {found.weight_version}"), ("sessions of", found.memory_scope)]
    table(None, [row for row in rows if row[1]])


def session_list(found: Sequence[SessionInfo], current: str | None) -> None:
    """Stored chats, the current one marked."""
    rows = [
        ("●" if s.session_id == current else "", s.session_id, str(s.num_messages), _time(s.created_at),
         _time(s.last_updated))
        for s in found
    ]  # fmt: skip
    table(("", "SESSION", "MESSAGES", "CREATED", "UPDATED"), rows)


def session_detail(found: SessionDetail) -> None:
    """A chat with its messages."""
    count = len(found.messages)
    facts = [f"session {found.session_id}", f"{count} message{'s' * (count != 1)}"]
    facts += [f"updated {_time(found.last_updated)}"] if found.last_updated else []
    print(" · ".join(facts))
    for message in found.messages:
        print(f"\n{message.role}{' (broke off)' if message.incomplete else ''}")
        print("\n".join(f"  {line}" for line in message.content.splitlines()))


def table(headers: Sequence[str] | None, rows: Sequence[Sequence[str]], file: TextIO | None = None) -> None:
    """Rows below each other. Nothing is cut off: what is too wide for the terminal goes on in the next line."""
    out = file or sys.stdout
    if out.isatty() and _rich_table(headers, rows, out):
        return
    lines = [*([headers] if headers else []), *rows]
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(lines[0]))] if lines else []
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), file=out)


def _rich_table(headers: Sequence[str] | None, rows: Sequence[Sequence[str]], out: TextIO) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    made = Table(box=box.SIMPLE, show_header=headers is not None)
    for number in range(len(rows[0]) if rows else 0):
        made.add_column(headers[number] if headers else "", overflow="fold", style="bold" if number == 0 else "")
    for row in rows:
        made.add_row(*map(Text, row))  # Text: a name with [brackets] is no markup
    Console(file=out).print(made)
    return True


def _time(text: str | None) -> str:
    return "" if text is None else text.replace("T", " ").partition(".")[0].partition("+")[0]
