"""What vLLM's serving classes raise, return and stream as errors, as the errors of this server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from gradwire.server.engines.vllm.errors import RETRY_AFTER, engine_dead
from gradwire.server.errors import (
    FieldViolation,
    GradwireError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)

_MOST_VIOLATIONS = 5
# pydantic names the types that a value may be of as if they were fields: messages.0.ChatCompletion...Param.content.
_ONE_OF_SEVERAL = re.compile(r"\.(?:[A-Z]\w*Param|[A-Z]\w*Message)(?=\.|$)")
# vLLM's names for the prompt once it is read, which no request has.
_INNER = {"input_text", "input_tokens"}


def unreadable(error: ValidationError) -> InvalidArgument:
    """A body that is no request: one violation a field, the first few."""
    from vllm.entrypoints.serve.exception_handling.handlers.validation import clean_loc_for_param

    found: dict[str, str] = {}
    for item in error.errors(include_url=False, include_input=False):
        cause = item.get("ctx", {}).get("error")
        field = getattr(cause, "parameter", None) or clean_loc_for_param(item["loc"])
        field = _ONE_OF_SEVERAL.sub("", field)
        found.setdefault(field, str(cause.args[0]) if cause is not None and cause.args else item["msg"])
    return InvalidArgument([FieldViolation(*pair) for pair in list(found.items())[:_MOST_VIOLATIONS]])


def returned(error: Any) -> GradwireError:
    """An ErrorInfo of vLLM's: what its serving classes return in place of an answer."""
    message, code, param = str(error.message), int(error.code), error.param or ""
    param = "" if param in _INNER else param
    if code == 404:
        return NotFound("model", param, message)
    if code == 429:
        return ResourceExhausted("ENGINE_BUSY", message, retry_after=RETRY_AFTER)
    if code == 501:
        return Unimplemented("NOT_SUPPORTED", message)
    if code == 503:
        return Unavailable("ENGINE_UNAVAILABLE", message, retry_after=RETRY_AFTER)
    if 400 <= code < 500:
        return InvalidArgument.at(param, message)
    return GradwireError("ENGINE_FAILED", message)


def raised(error: Exception) -> Exception:
    """What a serving class raised; an exception that tells nothing of the request stays itself."""
    from jinja2.exceptions import TemplateError
    from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMNotFoundError
    from vllm.v1.engine.exceptions import EngineDeadError

    match error:
        case GradwireError():
            return error
        case EngineDeadError():
            return engine_dead()
        case GracefulHTTPError():
            return ResourceExhausted("ENGINE_BUSY", str(error), retry_after=RETRY_AFTER)
        case VLLMNotFoundError():
            return NotFound("model", "", str(error))
        case TemplateError():
            return InvalidArgument.at("messages", f"the model's chat template refuses them: {error}")
        # vLLM reads requests with bare ValueErrors and TypeErrors, too, and answers 400 to all of them.
        case VLLMClientError() | ValueError() | TypeError() | OverflowError():
            text = str(error.args[0]) if error.args else str(error)
            field = getattr(error, "parameter", None) or _subject(text)
            return InvalidArgument.at("" if field in _INNER else field, text)
        case NotImplementedError():  # vLLM raises it for what it, or the model, cannot do
            return Unimplemented("NOT_SUPPORTED", str(error))
    return error


def _subject(text: str) -> str:
    """The field of a sentence such as "n must be at least 1"."""
    found = re.match(r"([a-z_]+) must\b", text)
    return found[1] if found else ""


@contextmanager
def translated() -> Iterator[None]:
    """Raise what is raised inside as an error of this server."""
    try:
        yield
    except Exception as error:
        ours = raised(error)
        if ours is error:
            raise
        raise ours from error
