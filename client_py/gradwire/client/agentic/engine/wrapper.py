"""`BaseEngineWrapper`: what an agent engine is to its trainer."""

from __future__ import annotations

import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gradwire.client._core.address import parse_address
from gradwire.client._core.extras import extra
from gradwire.client.agentic.engine.completions import Completions
from gradwire.client.agentic.trajectory import Trajectory

_K = 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})(?P<path>(?:/[A-Za-z0-9._~-]+)*)")


class BaseEngineWrapper(ABC):
    """An agent engine: given tasks, it plays them against the servers that it is connected to.

    Args:
        agent_name: letters, digits and underscores, not beginning with a digit.
        tokenizer: transformers' tokenizer of the model. `...`, as the documentation prints it, stands for one that
            this engine does without.
        sampling_params: for the engine's own requests; kept as a copy. Default: none.
        max_prompt_length: tokens, 1 to 131072.
        max_response_length: tokens, 1 to 8192, or to the class's `max_response_length_limit`.
        n_parallel_agents: 1 to 64.
        max_steps: 1 to 10, or to the class's `max_steps_limit`.

    `server_addresses` ("HOST:PORT" each) and `completions` (one callable for each, see `Completions`) are None until
    `connect`.

    Raises:
        ValueError: an argument out of its range, or no tokenizer.
        TypeError: a tokenizer that is none of transformers'.
        ImportError: transformers is not installed.
    """

    max_response_length_limit: ClassVar[int] = 8 * _K
    max_steps_limit: ClassVar[int] = 10

    def __init__(
        self,
        agent_name: str,
        tokenizer: Any,
        sampling_params: dict[str, Any] | None = None,
        max_prompt_length: int = 128 * _K,
        max_response_length: int = 8 * _K,
        n_parallel_agents: int = 8,
        max_steps: int = 5,
    ) -> None:
        if not isinstance(agent_name, str) or not _NAME.fullmatch(agent_name):
            _refuse("agent_name", "agent_name must be a non-empty valid Python identifier")
        _check_tokenizer(tokenizer)
        right = sampling_params is None or isinstance(sampling_params, dict)
        if not right or not all(isinstance(key, str) for key in sampling_params or ()):
            _refuse("sampling_params", "sampling_params must be a dictionary or None and all keys must be strings")
        _check_range("max_prompt_length", max_prompt_length, 128 * _K)
        _check_range("max_response_length", max_response_length, self.max_response_length_limit)
        _check_range("n_parallel_agents", n_parallel_agents, 64)
        _check_range("max_steps", max_steps, self.max_steps_limit)
        self.agent_name = agent_name
        self.tokenizer = tokenizer
        self.sampling_params = dict(sampling_params or {})
        self.max_prompt_length = max_prompt_length
        self.max_response_length = max_response_length
        self.n_parallel_agents = n_parallel_agents
        self.max_steps = max_steps
        self.token: str | None = None
        self.completions: list[Completions] | None = None
        self.server_addresses: list[str] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """The documentation calls `generate_agent_trajectories_async()` without tasks; that is with none."""
        super().__init_subclass__(**options)
        method = cls.__dict__.get("generate_agent_trajectories_async")
        if callable(method):
            cls.generate_agent_trajectories_async = _with_optional_tasks(method)  # type: ignore[method-assign]

    def connect(self, server_addresses: Sequence[str], *, token: str | None = None, timeout_s: float = 600.0) -> None:
        """Sets `server_addresses` and `completions`; before `initialize`.

        Args:
            server_addresses: "HOST:PORT" of a server's HTTP door each; "HOST:PORT/jobs/3" is a job's own sampler.
            token: the caller's, where the servers ask for one; default GRADWIRE_TOKEN. `self.token` has it.
            timeout_s: the most that one completion takes, its retries included.

        ValueError for what is no address, for none at all, and for a token that would travel in the clear.
        """
        if isinstance(server_addresses, str) or not server_addresses:
            raise ValueError('server_addresses must be a list of at least one "HOST:PORT"')
        addresses = [_checked_address(address) for address in server_addresses]
        token = token or os.environ.get("GRADWIRE_TOKEN") or None
        for address in addresses if token else ():
            if not parse_address(f"http://{address.partition('/')[0]}").local:
                raise ValueError(
                    f"server_addresses: a token would travel to {address} in the clear; reach it over a loopback"
                    " address, such as an SSH tunnel's"
                )
        self.token = token
        self.server_addresses = addresses
        self.completions = [Completions(address, token=token, timeout_s=timeout_s) for address in addresses]

    @abstractmethod
    def initialize(self) -> None:
        """Makes ready what tasks need. Called once, connected."""

    @abstractmethod
    def generate_agent_trajectories_async(self, tasks: list[dict[str, Any]]) -> list[Trajectory]:
        """Plays each task.

        Args:
            tasks: each with `id`, `question`, `ground_truth` and whatever else the data set has. A task that is to be
                sampled n times is there n times, side by side.

        Returns:
            A trajectory for each, in any order: `idx` is the task's position in `tasks`. `run_tasks` keeps a task
            that fails from taking others with it.
        """


def _with_optional_tasks(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: BaseEngineWrapper, tasks: list[dict[str, Any]] | None = None, **options: Any) -> Any:
        return method(self, [] if tasks is None else tasks, **options)

    return call


def _check_tokenizer(tokenizer: Any) -> None:
    if tokenizer is None:
        raise ValueError("tokenizer must be provided")
    if tokenizer is ...:
        return
    with extra("agentic", "BaseEngineWrapper"):
        from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

    if not isinstance(tokenizer, (PreTrainedTokenizer, PreTrainedTokenizerFast)):
        kind = type(tokenizer).__name__
        raise TypeError(f"Expected a PreTrainedTokenizer or PreTrainedTokenizerFast, got {kind}")


def _check_range(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        shown = f"{high // _K}K" if high >= _K and not high % _K else str(high)
        _refuse(name, f"{name} must be an integer between [1, {shown}]")


def _refuse(name: str, text: str) -> None:
    raise ValueError(f"The parameter '{name}' of function '__init__' is invalid, message: {text}")


def _checked_address(address: Any) -> str:
    text = address.removeprefix("http://").rstrip("/") if isinstance(address, str) else ""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f'server_addresses: {address!r} is no address; it must be "HOST:PORT"')
    return text
