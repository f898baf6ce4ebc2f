"""Warnings stand at the caller's line, whichever thread and coroutine they come from."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable
from types import FunctionType

import pytest

from gradwire.client._core.loop import shared_loop
from gradwire.client.arctic import ArcticRLWarning
from gradwire.client.arctic.warning import called_from, here, warn


def ours(function: Callable[..., object]) -> Callable[..., object]:
    """The function as if it stood in the client."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**globals(), "__name__": "gradwire.client.arctic.training"})


async def _method() -> None:
    await asyncio.sleep(0)
    warn("no loss_mask")


def _wait() -> None:
    shared_loop().run(called_from(here(), method()))  # type: ignore[arg-type]


method = ours(_method)
wait = ours(_wait)  # which knows `method`


def line_of(call: Callable[[], object]) -> tuple[str, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = caught
    assert warning.category is ArcticRLWarning
    return warning.filename, warning.lineno


async def awaits() -> None:
    await method()  # type: ignore[misc]


def waits() -> None:
    wait()


@pytest.mark.parametrize(("call", "function"), [(lambda: asyncio.run(awaits()), awaits), (waits, waits)])
def test_it_names_the_callers_line(call: Callable[[], object], function: Callable[..., object]) -> None:
    assert line_of(call) == (__file__, inspect.getsourcelines(function)[1] + 1)


def test_a_line_is_told_a_text_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            waits()
    assert len(caught) == 1
