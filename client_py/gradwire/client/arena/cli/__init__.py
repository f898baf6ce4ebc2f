"""`gradwire agent run | generate | status | sessions ...`: talk to a deployed agent from a shell.

A conversation goes on from one `generate` to the next; `sessions` lists, resumes, clears and deletes them. Credentials
come from a file or the environment (ARENA_API_KEY, or ARENA_ORG_KEY and ARENA_EXTERNAL_USER_ID, or GRADWIRE_TOKEN):
other users of a machine see a command's flags. With --json only JSON goes to stdout, and to stderr nothing but, when
it fails, an object that says why (`gradwire.client.reporting`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gradwire.client.arena.cli import chat, policy, sessions, shown
from gradwire.client.arena.cli.opened import Opened
from gradwire.client.arena.errors import ArenaAuthError, ArenaError
from gradwire.client.reporting import report

_INTERRUPTED = 130  # as a shell shows the signal SIGINT
_SAMPLING = (
    ("--max-new-tokens", int, "of a reply, at most (100)"),
    ("--temperature", float, "divides the logits; 0 takes the likeliest token each time (0.7)"),
    ("--top-p", float, "above 0 to 1: only the likeliest tokens that make up this much (0.9)"),
    ("--top-k", int, "only so many of the likeliest tokens (all)"),
    ("--min-p", float, "0 to 1: no token less likely than this part of the likeliest one's probability (0)"),
    ("--seed", int, "makes a reply, or a policy's samples, repeatable (none)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `run`, `generate`, `status` and `sessions`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_action = actions.add_parser(
        "run", help="make it the current one, and chat with it; or observations from stdin, actions to stdout"
    )
    _common(run_action)
    run_action.add_argument("--select", action="store_true", help="only make it the current one")
    run_action.add_argument("--deterministic", action=argparse.BooleanOptionalAction, help="of a policy (as deployed)")
    run_action.add_argument("--batched", action="store_true", help="observations have a leading batch dimension")
    generate = actions.add_parser("generate", help="stream the reply to one prompt")
    _common(generate)
    generate.add_argument("--prompt", help="the message (all of stdin)")
    for action in (run_action, generate):
        which = action.add_mutually_exclusive_group()
        which.add_argument("--session", "--session-id", metavar="ID", help="chat to continue, this once")
        which.add_argument("--new-session", action="store_true", help="begin a new chat, which later prompts continue")
        for flag, kind, what in _SAMPLING:
            action.add_argument(flag, type=kind, metavar="N" if kind is int else "X", help=what)
        action.add_argument("--greedy", action="store_true", help="take the most likely token each time")
        action.add_argument("--stop", action="append", metavar="TEXT", help="the reply ends here; may be repeated")
    _common(actions.add_parser("status", help="what the deployment is"))
    stored = actions.add_parser("sessions", help="list, show, resume, clear and delete stored chats")
    _add_sessions(stored.add_subparsers(dest="sessions_action", required=True, metavar="ACTION"))


def _add_sessions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lists = actions.add_parser("list", help="the most recently updated first")
    lists.add_argument("--limit", type=int, default=50, metavar="N", help="so many at most (50)")
    _common(lists)
    get = actions.add_parser("get", help="one, with its messages")
    get.add_argument("session_id")
    _common(get)
    resume = actions.add_parser("resume", help="make an older one the one that prompts continue")
    resume.add_argument("--session", "--session-id", metavar="ID", help="which (asks)")
    _common(resume)
    _common(actions.add_parser("clear", help="the next prompt begins a new one; nothing is deleted"))
    delete = actions.add_parser("delete", help="delete one, with all its messages")
    delete.add_argument("session_id")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    _common(delete)


def _common(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "deployment", nargs="?", help="its name or endpoint (the one of `run`, or the server's only one)"
    )
    action.add_argument("--json", action="store_true", help="for programs; errors, too")
    action.add_argument("--address", "--server", help="of the server (GRADWIRE_ADDRESS, 127.0.0.1:50051)")
    action.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds the token (ARENA_API_KEY, GRADWIRE_TOKEN)"
    )
    action.add_argument("--ca", type=Path, metavar="FILE.pem", help="certificates that the server's descends from")
    action.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="of a call, or of a silence (30)"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0; 1 with the reason on standard error; 130 when interrupted."""
    try:
        with Opened(args) as opened:
            return _run(args, opened)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        raise
    except ArenaAuthError as error:
        text = "\n".join(filter(None, (error.message, error.cli_hint)))
        report("agent", error, text, for_programs=args.json)
        return 1
    except (ArenaError, ImportError, OSError, ValueError) as error:
        report("agent", error, for_programs=args.json)
        return 1


def _run(args: argparse.Namespace, opened: Opened) -> int:
    match args.action:
        case "status":
            shown.status(opened.status, args.json)
            return 0
        case "sessions":
            return sessions.run(args, opened)
        case "generate":
            return chat.generate(args, opened)
    opened.select()
    if args.select:
        return 0
    agent = opened.status.agent
    return chat.talk(args, opened) if agent is None or agent.llm else policy.act(args, opened)
