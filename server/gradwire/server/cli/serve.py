"""`gradwire serve`: runs the server until SIGTERM or Ctrl-C.

stdout gets one line, `ready grpc=HOST:PORT`, once the server can serve; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from gradwire.server.allocation import keep_freed_memory
from gradwire.server.bad_settings import Sources
from gradwire.server.cli.leaving import leave, leave_at_once
from gradwire.server.config import Settings, load_settings
from gradwire.server.errors import GradwireError
from gradwire.server.observability.heap import frozen_heap
from gradwire.server.observability.logs import configure
from gradwire.server.polling import choose_poller
from gradwire.server.tls_files import check_tls_files

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags; each stands above the environment and the file."""
    parser.add_argument("--model", help="what to sample: a name (`gradwire model list`), a folder, or a hub id")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="where to serve gRPC (127.0.0.1:50051; port 0: a free one)")
    parser.add_argument("--http", metavar="HOST:PORT", help="where to serve calls, health and metrics over HTTP (off)")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="settings file")
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where checkpoints, tokens and conversations lie (~/.local/share/gradwire)",
    )
    parser.add_argument(
        "--insecure-no-auth",
        action="store_true",
        default=None,
        help="serve every program on this machine without a token (loopback addresses only)",
    )
    parser.add_argument(
        "--deploy",
        dest="deployments",
        action="append",
        default=[],
        type=_deployment,
        metavar="NAME=BUNDLE|llm",
        help="deploy a bundle, or the model, under a name; may be repeated",
    )
    parser.add_argument("--stop-on-eof", action="store_true", help="end when stdin closes, as with its owner")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="of gradwire's log (info)")


def _deployment(text: str) -> tuple[str, dict[str, object]]:
    name, equals, source = text.partition("=")
    if not equals or not name or not source:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=BUNDLE, nor NAME=llm")
    return name, {"llm": True} if source == "llm" else {"bundle": str(Path(source).expanduser().absolute())}


def run(args: argparse.Namespace) -> int:
    """The process's exit code: 0 after a clean end, 1 when the server could not start, 2 for bad settings.

    One that was started does not return: it ends the process.
    """
    try:
        settings = load_settings(
            args.config,
            model=args.model,
            grpc=args.grpc,
            http=args.http,
            data_dir=args.data_dir,
            log_level=args.log_level,
            insecure_no_auth=args.insecure_no_auth,
            deployments=dict(args.deployments) or None,
        )
        tls_warnings = check_tls_files(settings.tls) if settings.tls else ()
    except ValueError as error:
        print(f"gradwire serve: {error}", file=sys.stderr)
        return 2
    ready_line = _claim_stdout()
    configure(settings.log_level)
    for warning in tls_warnings:
        log.warning("%s", warning)
    if settings.log_level != "debug":
        # vLLM warns of each choice that we make for it at every start.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        warnings.filterwarnings("ignore", category=FutureWarning)
        os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # of the engines' processes
    # Engines are spawned, never forked, so gRPC need not prepare for a fork, nor log that it cannot.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    choose_poller()
    keep_freed_memory()
    import uvloop

    began = time.monotonic()

    def progress(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f}s] {line}", file=sys.stderr, flush=True)

    sources = Sources(args.config)
    code = uvloop.run(_serve(settings, ready_line, sources, progress, stop_on_eof=args.stop_on_eof))
    return leave(code, lambda: progress("stopped"))


def _claim_stdout() -> TextIO:
    """Keep stdout for the ready line; whatever else writes there, child processes included, goes to stderr."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Sets `stop` when stdin closes, which it does when its owner ends, however that happens."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


async def _serve(
    settings: Settings, ready_line: TextIO, sources: Sources, progress: Callable[[str], None], *, stop_on_eof: bool
) -> int:
    from gradwire.server.app import App
    from gradwire.server.configured import BadSamplerSettings
    from gradwire.server.engines.factory import RealEngines
    from gradwire.server.models.recipes import RecipeError
    from gradwire.server.models.resolve import ModelNotFoundError

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if stop_on_eof:
        _watch_stdin(loop, stop)
    app = App(settings, RealEngines(), progress)
    code = 0
    starting = loop.create_task(app.start())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        progress("stopping before the start is complete; a second signal ends it now")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _hurry, progress)
        starting.cancel()
    try:
        await starting
        with frozen_heap():
            http = f" http={app.http_address}" if app.http_address else ""
            print(f"ready grpc={app.grpc_address}{http}", file=ready_line, flush=True)
            await stopping
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, app.hurry)
    except asyncio.CancelledError:
        pass
    except BadSamplerSettings as error:
        for violation in error.violations:
            place = sources.of(violation.field.split("."))
            print(f"gradwire serve: {place}{violation.field}: {violation.description}", file=sys.stderr)
        code = 2
    except (GradwireError, ModelNotFoundError, RecipeError, OSError, ValueError) as error:
        print(f"gradwire serve: {error}", file=sys.stderr)
        code = 1
    finally:
        stopping.cancel()
        await app.stop()
    return code


def _hurry(progress: Callable[[str], None]) -> None:
    progress("ending now")
    leave_at_once(1)
