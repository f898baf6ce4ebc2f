"""An argument of a wrong type is told to the caller by name, in every method of every sub-client.

The methods and their arguments are found by introspection, so that a new one is tested too. Nothing is sent: there is
no server where the client would connect, and a call that gets so far has taken its arguments.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import pytest_asyncio

from gradwire.client import AsyncClient, KeepAliveConfig, RetryConfig, TLSConfig, UnavailableError
from gradwire.client.aio.opened import AsyncOpenRollout
from gradwire.client.types.inference import ValueLike
from gradwire.client.types.sampling import SamplingKeywords
from tests.client.fake import Fake

WRONG: tuple[Any, ...] = (
    object(), "x", b"x", b"\xff", "\ud800", 0.01, -1, 2**70, True, math.nan, [], [object()], ["x"], [1, [2]], {},
    {"x": object()}, {5: 1}, np.ones(2), None,
)  # fmt: skip
"""Wrong for most arguments, and right for some."""
STAND_INS: dict[str, Any] = {
    "scopes": ["admin"],
    "specs": [{}],
    "batch": {"input_ids": [[1]]},
    "manifest": {"w": np.ones(2)},
    "tensors": {"w": np.ones(2)},
    "observation": [1.0],
    "inputs": [1.0],
}
"""Right values of arguments that have to be given and are neither text nor a number."""
NEEDED: dict[str, dict[str, Any]] = {"jobs.create": {"sampling": {}}}
"""Arguments without which a call says that there is nothing to do."""
OTHER_NAMES = {
    "manifest": "tensor|a tensor's name",
    "tensors": "tensor|a tensor's name",
    "prompts": "prompt",
}
"""How an argument's part begins in messages, where that is not with the argument's own name."""


@pytest_asyncio.fixture
async def nowhere() -> Any:
    """A client of a server that does not exist: calls that get so far are UnavailableError at once."""
    async with AsyncClient("unix:///nonexistent/socket", timeout=5, retry=RetryConfig(max_attempts=1)) as client:
        yield client


def kinds(hint: Any) -> set[type]:
    """Of Python's plain types, those that an annotation allows."""
    if hint == ValueLike:
        return {int, float, bool, list, dict, np.ndarray}
    if get_origin(hint) in (Union, UnionType):
        return set().union(*map(kinds, get_args(hint)))
    origin = get_origin(hint) or hint
    if origin is Any:
        return {object}
    if not isinstance(origin, type):
        return set()
    if issubclass(origin, Mapping):
        return {dict}
    if issubclass(origin, Sequence) and origin is not str:
        return {list, np.ndarray, str} if str in get_args(hint) else {list, np.ndarray}  # one text for a list of one
    return {origin}


def allows(hint: Any, value: Any) -> bool:
    """Whether a value may be right: its type is, or is taken for one that is, as bytes are for text."""
    if "object object" in repr(value):
        return False
    takes: dict[type, set[type]] = {bytes: {str}, int: {float, bool}, bool: {float}}
    return value is None or not kinds(hint).isdisjoint({type(value), *takes.get(type(value), ())})


def methods(client: AsyncClient) -> Iterator[tuple[str, Any]]:
    """Every public method of every sub-client, and of a rollout that was opened, by name."""
    parts = {
        name: part for name, part in vars(client).items() if type(part).__module__.startswith("gradwire.client.aio")
    }
    assert len(parts) >= 9
    opened: Any = AsyncOpenRollout(client.rollouts, lambda: None)  # type: ignore[arg-type,return-value]  # not entered
    opened._opened = (type("Opened", (), {"rollout_id": "r"}), "")
    for part_name, part in (parts | {"opened": opened}).items():
        for name, _ in inspect.getmembers(type(part), inspect.isfunction):
            if not name.startswith("_"):
                yield f"{part_name}.{name}", getattr(part, name)


def stand_ins(name: str, method: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Right values for the arguments that have to be given."""
    found = dict(NEEDED.get(name, {}))
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            plain = "x" if str in kinds(hints[parameter.name]) else 1
            found[parameter.name] = STAND_INS.get(parameter.name, plain)
    return found


async def outcome(method: Any, arguments: Mapping[str, Any]) -> BaseException | None:
    """What a call raises; a stream or a rollout is entered and read."""
    try:
        result = method(**arguments)
        if inspect.isawaitable(result):
            await result
        else:
            async with result as entered:
                await anext(entered)
    except BaseException as error:
        return error
    return None


def fault(argument: str, value: Any, right: bool, error: BaseException | None) -> str:
    """What is wrong with what a call raised; empty when nothing is."""
    told = rf"({re.escape(argument)}|{OTHER_NAMES.get(argument, '$^')})(?!\w)"
    if isinstance(error, TypeError | ValueError) and re.match(told, str(error)):
        return ""
    if isinstance(error, UnavailableError) and right:
        return ""
    return f"{argument}={value!r}: {error!r}"


async def test_every_argument_of_every_method(nowhere: AsyncClient) -> None:
    faults, tried = [], 0
    for name, method in methods(nowhere):
        hints = get_type_hints(method)
        right = stand_ins(name, method, hints)
        error = await outcome(method, right)
        assert isinstance(error, UnavailableError), f"{name}({right}): {error!r}; give it a stand-in that is right"
        for argument, parameter in inspect.signature(method).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                for key in get_type_hints(SamplingKeywords):
                    error = await outcome(method, right | {key: WRONG[0]})
                    faults += [f"{name}: {text}"] if (text := fault(f"params.{key}", WRONG[0], False, error)) else []
                continue
            for value in WRONG[:-1] if argument in NEEDED.get(name, ()) else WRONG:
                error = await outcome(method, right | {argument: value})
                text = fault(argument, value, allows(hints[argument], value), error)
                faults += [f"{name}: {text}"] if text else []
                tried += 1
    assert tried > 3000
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"address": 5}, r"^address is 5 \(int\); it takes text, such as"),
        ({"token": b"secret"}, r"^token is of type bytes; it takes text$"),
        ({"tls": "cert.pem"}, r"^tls is of type str; it takes a TLSConfig, True or False$"),
        ({"timeout": "x"}, r"^timeout is 'x' \(str\); it is in seconds and above 0"),
        ({"timeout": True}, r"^timeout is True \(bool\)"),
        ({"timeout": math.nan}, r"^timeout is nan \(float\)"),
        ({"timeout": -1}, r"^timeout is -1 \(int\)"),
        ({"timeout": 10**400}, r"^timeout is 1000"),
        ({"retry": {"max_attempts": 1}}, r"^retry is \{'max_attempts': 1\} \(dict\); it takes a RetryConfig$"),
        ({"keepalive": 30}, r"^keepalive is 30 \(int\); it takes a KeepAliveConfig$"),
        ({"max_message_bytes": "1 MB"}, r"^max_message_bytes is '1 MB' \(str\); it takes a whole number$"),
        ({"max_message_bytes": 2**40}, r"^max_message_bytes is 1099511627776; it is at most"),
        ({"metadata": "x"}, r"^metadata is of type str; it takes a dict from text to text$"),
        ({"metadata": {5: "x"}}, r"^a key of metadata is 5 \(int\)"),
        ({"metadata": {"x-key": 5}}, r"^metadata\['x-key'\] is of type int; it takes text$"),
        ({"shared_memory": "yes"}, r"^shared_memory is 'yes' \(str\); it takes True or False$"),
    ],
)
def test_what_a_client_is_made_with(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint) as raised:
        AsyncClient(**arguments)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("config", [RetryConfig, KeepAliveConfig, TLSConfig])
def test_every_field_of_a_configuration(config: Any) -> None:
    hints = get_type_hints(config)
    for name, hint in hints.items():
        for value in WRONG:
            if allows(hint, value):
                continue
            with pytest.raises((TypeError, ValueError), match=f"^{name} "):
                config(**{name: value})


async def test_the_clients_own_calls(nowhere: AsyncClient) -> None:
    for value in WRONG:
        if not isinstance(value, str | None):
            error = await outcome(nowhere.health, {"service": value})
            assert not fault("service", value, False, error)
        if not allows(float, value) or value is True or value == -1:
            for call in (nowhere.health, nowhere.wait_ready):
                assert not fault("timeout", value, False, await outcome(call, {"timeout": value}))


async def test_a_timeout_of_many_years_is_none(fake: Fake, client: AsyncClient) -> None:
    timeouts: list[Any] = [math.inf, 1e300, 2**70, np.float32(30)]
    for timeout in timeouts:
        assert (await client.admin.get_capabilities(timeout=timeout)).max_message_bytes


async def test_a_wrong_tensor_among_those_that_are_sent(fake: Fake, client: AsyncClient) -> None:
    tensors = {"a": np.ones(2), "b": object()}
    with pytest.raises(TypeError, match=r"^tensor 'b' holds object"):  # not a cancelled call
        await client.weights.transfer_update("u", tensors)
