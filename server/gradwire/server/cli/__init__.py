"""`gradwire COMMAND ...`: the command line.

Knows: which commands there are and where each lives. Does not know: what they do. A command is a module
with `add_arguments(parser)` and `run(args) -> int`, imported only when it is the one asked for: `gradwire
--help` answers at once, and a client-only install can print it.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gradwire.server.cli.usage import Parser, UsageError, fail, refuse, wants_json
from gradwire.server.engines.vllm.plugin import FRONT_PID
from gradwire.server.observability.logs import heed_vllm_level

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("gradwire.server.cli.serve", "run the server"),
    "agent": ("gradwire.client.arena.cli", "talk to deployed agents, and to their stored chats"),
    "deploy": ("gradwire.server.cli.deploy", "put an agent behind a name"),
    "undeploy": ("gradwire.server.cli.undeploy", "end a deployment"),
    "deployments": ("gradwire.server.cli.deployments", "list the deployments"),
    "job": ("gradwire.server.cli.job", "list and destroy jobs"),
    "losses": ("gradwire.server.cli.losses", "list the training losses, and check them against worked cases"),
    "token": ("gradwire.server.cli.token", "make, list and revoke tokens"),
    "model": ("gradwire.server.cli.model", "list, build and find models"),
    "policy": ("gradwire.server.cli.policy", "convert, inspect and check policies and supervised models"),
}

# Processes that vLLM spawns import the main module first, and with it this one: but for `python -m gradwire.server`,
# whose main module they leave out.
if FRONT_PID in os.environ:
    heed_vllm_level()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the process's exit code."""
    try:
        try:
            return _main(argv)
        finally:  # also after argparse's SystemExit, which follows the text of --help
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has had enough, as `head` does. Python flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell shows the signal SIGPIPE


def _main(argv: Sequence[str] | None) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it logs each failed handshake, which we tell in our own words
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked_for = next((argument for argument in arguments if not argument.startswith("-")), None)
    for_programs = wants_json(arguments)
    parser = Parser(prog="gradwire", description="Sample with vLLM and train with DeepSpeed over gRPC.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == asked_for:
            try:
                module = import_module(module_name)
            except ModuleNotFoundError as error:
                return missing_package(name, error, for_programs=for_programs)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    try:
        parsed = parser.parse_args(arguments)
    except UsageError as error:
        refuse(error, for_programs=for_programs)
    code: int = parsed.run(parsed)
    return code


def missing_package(command: str, error: ModuleNotFoundError, *, for_programs: bool = False) -> int:
    """Says what a client-only install lacks for this command; the exit code. A missing module of ours is a bug."""
    if error.name is None or error.name.startswith("gradwire"):
        raise error
    from gradwire.server.packages import ENGINES

    text = f"it needs the package {error.name}, which the client alone does not bring. "
    text += f"Install the server: in gradwire's source folder, {ENGINES}"
    return fail(command, error, text, for_programs=for_programs)
