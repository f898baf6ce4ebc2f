"""`generate` and, with a language model, `run`: replies as they come, and which chat they belong to."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from gradwire.client.arena.cli import shown
from gradwire.client.arena.cli.opened import Opened
from gradwire.client.arena.errors import ArenaError
from gradwire.client.arena.streams import TextStream
from gradwire.client.reporting import report

_INTERRUPTED = 130
_COMMANDS = "/new begins a new chat, /help shows this, /quit (or Ctrl-D) ends."
_HELP = f"A line is a message. {_COMMANDS}"
_COMMAND = re.compile(r"/\w+(?=\s|$)")  # "/etc/hosts" is none


def generate(args: argparse.Namespace, opened: Opened) -> int:
    """One prompt's reply."""
    prompt = sys.stdin.read() if args.prompt is None else args.prompt
    session = args.session or (None if args.new_session else opened.session)
    return _reply(args, opened, prompt, session)


def talk(args: argparse.Namespace, opened: Opened) -> int:
    """Prompts from stdin, line by line, in one chat. To a person an error of one does not end it."""
    interactive = sys.stdin.isatty()
    session = args.session or (None if args.new_session else opened.session)
    if interactive:
        print(f"{opened.status.deployment_id}. {_HELP}", file=sys.stderr)
    if session and not args.session and not args.json:
        print(f"goes on with session {session}; /new begins a new one", file=sys.stderr)
    code = 0
    while (line := _line(interactive)) is not None:
        if line == "/quit":
            break
        if line == "/new":
            session = None
            continue
        if line == "/help" and not args.json:
            print(_HELP, file=sys.stderr)
            continue
        if not line:
            continue
        try:
            _refuse_command(line)
            code = _reply(args, opened, line, session)
        except (ArenaError, ValueError) as error:
            if not interactive:
                raise
            report("agent", error, for_programs=args.json)
            continue
        if code and not interactive:
            break
        session = args.session or opened.session
    return code


def _refuse_command(line: str) -> None:
    """A slip of the hand is no message: it would be answered by the model, and stay in the chat."""
    if command := _COMMAND.match(line):
        raise ValueError(f"there is no {command[0]}, and nothing was sent. {_COMMANDS}")


def _line(interactive: bool) -> str | None:
    try:
        if interactive:
            return input("> ").strip()
        line = sys.stdin.readline()
    except EOFError:
        print()
        return None
    return line.strip() if line else None


def _reply(args: argparse.Namespace, opened: Opened, prompt: str, session: str | None) -> int:
    stream = opened.agent.generate_stream(prompt, params=_params(args), session_id=session)
    started = session is not None
    try:
        for piece in stream:
            if not started:
                started = True
                _remember(args, opened, stream)
            _show(piece, args.json)
    except KeyboardInterrupt:
        stream.cancel()
        if not args.json:
            print()
            print("interrupted; what came is kept", file=sys.stderr)
        return _INTERRUPTED
    finally:
        stream.cancel()
    if not started:  # a reply of no text
        _remember(args, opened, stream)
    _end(stream, args.json)
    return 0


def _remember(args: argparse.Namespace, opened: Opened, stream: TextStream) -> None:
    if stream.session_id:
        opened.state.resume(opened.key, stream.session_id)
        if not args.json:
            print(f"started session {stream.session_id}", file=sys.stderr)


def _show(piece: str, for_programs: bool) -> None:
    if for_programs:
        shown.as_json({"text": piece})
    else:
        print(piece, end="", flush=True)


def _end(stream: TextStream, for_programs: bool) -> None:
    result = stream.result()
    if for_programs:
        end = {key: getattr(result, key) for key in ("session_id", "finish_reason", "num_dropped_messages")}
        shown.as_json({**end, "usage": stream.usage.model_dump()})
        return
    print()
    if result.num_dropped_messages:
        print(f"({result.num_dropped_messages} older messages no longer fit into the context)", file=sys.stderr)


def _params(args: argparse.Namespace) -> dict[str, Any]:
    names = ("max_new_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return {**given, "do_sample": False} if args.greedy else given
