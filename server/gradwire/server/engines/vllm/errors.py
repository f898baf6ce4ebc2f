"""From vLLM's errors to ours.

vLLM names its own parameters, often only in the text; a caller knows the request's fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from gradwire.server.engines.sampling import SamplingParams
from gradwire.server.errors import GradwireError, InvalidArgument, ResourceExhausted, Unavailable

RENAMED = {
    "logprobs": "log_probs",
    "prompt_logprobs": "prompt_log_probs",
    "structured_outputs": "structured",
    "prompt": "prompt",
}
OURS = frozenset(SamplingParams.__dataclass_fields__) | frozenset(RENAMED)
RETRY_AFTER = timedelta(seconds=1)


def engine_dead(how: str = "has died") -> Unavailable:
    """The engine's processes are gone; the job, which fails soon, says what to do."""
    return Unavailable("ENGINE_DEAD", f"the sampling engine {how}")


@contextmanager
def translated(params: SamplingParams | None = None) -> Iterator[None]:
    """Turn what vLLM raises inside into what a caller may see."""
    from vllm.exceptions import GracefulHTTPError, VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    try:
        yield
    except EngineDeadError as error:
        raise engine_dead() from error
    except GracefulHTTPError as error:
        raise ResourceExhausted("ENGINE_BUSY", str(error), retry_after=RETRY_AFTER) from error
    except VLLMClientError as error:
        raise InvalidArgument.at(_field(error, params), _text(error)) from error
    except GradwireError:
        raise
    except (ValueError, TypeError) as error:
        # Older checks of vLLM raise bare ValueErrors; while a request is being read they can
        # only mean that the request is at fault.
        if params is None:
            raise
        raise InvalidArgument.at(_field(error, params), _text(error)) from error


def _field(error: Exception, params: SamplingParams | None) -> str:
    """Our path of the parameter that the error is about."""
    name = getattr(error, "parameter", None)
    if name is None:
        words = re.findall(r"[a-z_]+", str(error))
        name = next((word for word in words if word in OURS and ("_" in word or word == words[0])), None)
    if name == "prompt":
        return "prompt"
    if name is not None and name in OURS:
        return f"params.{RENAMED.get(name, name)}"
    if params is not None and params.structured is not None:
        return "params.structured"
    return "params"


def _text(error: Exception) -> str:
    return str(error.args[0]) if error.args else str(error)
