"""`sessions list | get | resume | clear | delete`: stored chats with a language model."""

from __future__ import annotations

import argparse
import sys

from gradwire.client.arena.cli import shown
from gradwire.client.arena.cli.opened import Opened

_CHOICES = 50


def run(args: argparse.Namespace, opened: Opened) -> int:
    """The action that was asked for; its exit code."""
    match args.sessions_action:
        case "list":
            return _list(args, opened)
        case "get":
            found = opened.agent.get_session(args.session_id)
            if args.json:
                shown.as_json(found.model_dump(mode="json"))
            else:
                shown.session_detail(found)
            return 0
        case "resume":
            return _resume(args, opened)
        case "clear":
            cleared = opened.state.clear(opened.key)
            text = "the next prompt begins a new session" if cleared else "there is no current session to clear"
            return _say(args, {"cleared": cleared}, text)
    return _delete(args, opened)


def _list(args: argparse.Namespace, opened: Opened) -> int:
    found, current = opened.agent.list_sessions(limit=args.limit), opened.session
    if args.json:
        shown.as_json([{**s.model_dump(mode="json"), "current": s.session_id == current} for s in found])
    elif found:
        shown.session_list(found, current)
    else:
        print(f"no sessions on {opened.status.deployment_id or 'this deployment'} yet")
    return 0


def _resume(args: argparse.Namespace, opened: Opened) -> int:
    chosen = args.session or _ask(args, opened)
    if chosen is None:
        print("nothing resumed", file=sys.stderr)
        return 1
    session_id = opened.agent.get_session(chosen).session_id  # one that is not there is no one's to resume
    opened.state.resume(opened.key, session_id)
    return _say(args, {"session_id": session_id}, f"prompts continue session {session_id}")


def _ask(args: argparse.Namespace, opened: Opened) -> str | None:
    if args.json or not sys.stdin.isatty():
        raise ValueError("which session? Pass --session ID; `gradwire agent sessions list` shows them")
    found = opened.agent.list_sessions(limit=_CHOICES)
    if not found:
        raise ValueError("there are no sessions yet; `gradwire agent generate` starts one")
    for number, session in enumerate(found, 1):
        print(f"{number:3}  {session.session_id}  {session.num_messages} messages", file=sys.stderr)
    answer = input("number: ").strip()
    return found[int(answer) - 1].session_id if answer.isdecimal() and 0 < int(answer) <= len(found) else None


def _delete(args: argparse.Namespace, opened: Opened) -> int:
    session_id = args.session_id.strip()
    if not args.yes:
        if args.json or not sys.stdin.isatty():
            raise ValueError("deleting cannot be undone; pass --yes")
        if input(f"delete session {session_id} and its messages? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing deleted", file=sys.stderr)
            return 1
    deleted = opened.agent.delete_session(session_id)
    if opened.session == session_id:
        opened.state.clear(opened.key)
    text = f"deleted session {session_id}" if deleted else f"there is no session {session_id}"
    return _say(args, {"session_id": session_id, "deleted": deleted}, text)


def _say(args: argparse.Namespace, facts: dict[str, object], text: str) -> int:
    if args.json:
        shown.as_json(facts)
    else:
        print(text)
    return 0
