"""What commands say of errors: flags and commands, where Python's users are told of arguments and methods."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from importlib import import_module

import grpc
import pytest

from gradwire.client import AsyncClient, TLSConfig
from gradwire.client._core.status import deadline_passed, error_from_rpc
from gradwire.client.arena import Agent
from gradwire.client.arena.checks import action_inputs, check_modality, check_prompts
from gradwire.client.arena.models import AgentInfo
from gradwire.client.reporting import in_shell_words
from gradwire.server.cli import COMMANDS
from gradwire.server.domain.authentication import _secret
from gradwire.server.domain.deployments import taken

PYTHON = re.compile(r"\w=(?![A-Z])|\w\(|TLSConfig|Python|\bdict\b|; replace it")
FAR = "grpc://192.0.2.1:5"


def unavailable(said: str) -> Exception:
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details=said)
    return error_from_rpc(error, "/gradwire.v1.X/Y", "somewhere")


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception, match=r".") as found:
        call()
    return found.value


def errors() -> Iterator[Exception]:
    """Each as its own place makes it: new words there are seen here."""
    yield unavailable("CERTIFICATE_VERIFY_FAILED")
    yield unavailable("CERTIFICATE_VERIFY_FAILED: Hostname Verification Check failed")
    yield unavailable("refused")
    yield deadline_passed("/gradwire.v1.X/Y", "somewhere")
    yield taken("chat")
    yield raised(lambda: _secret(None))
    yield raised(lambda: AsyncClient(FAR, token="secret"))
    yield raised(lambda: AsyncClient("http://192.0.2.1:5", tls=TLSConfig()))
    yield raised(lambda: Agent("grpc://me:secret@localhost/x"))
    yield raised(lambda: check_prompts(""))
    yield raised(lambda: check_modality(AgentInfo(algo="PPO"), "llm"))
    pair = AgentInfo(algo="IPPO", multi_agent=True, agent_ids=("left", "right"))
    yield raised(lambda: action_inputs(pair, 0, None, None))
    yield raised(lambda: action_inputs(pair, {}, {"action_mask": 0}, None))


def test_a_command_speaks_of_flags_and_commands() -> None:
    for error in errors():
        assert PYTHON.search(str(error)) or "Prompt at index" in str(error), error
        for command in ("agent", "deploy"):
            assert not PYTHON.search(in_shell_words(command, str(error))), error


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers below it that are a whole command each; itself where there are none."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for sub in below:
        for child in sub.choices.values():
            yield from actions(child)


def test_every_command_but_serve_speaks_to_programs_too() -> None:
    found = []
    for name in COMMANDS.keys() - {"serve"}:
        parser = argparse.ArgumentParser(prog=name)
        import_module(COMMANDS[name][0]).add_arguments(parser)
        found += [(action.prog, "--json" in action._option_string_actions) for action in actions(parser)]
    assert len(found) > 20 and [prog for prog, takes_json in found if not takes_json] == []
