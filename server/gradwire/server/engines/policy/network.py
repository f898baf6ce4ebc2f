"""One network of a bundle in ONNX Runtime: checked against its manifest at load, then run on batches.

Knows: names, types and shapes of inputs and outputs. Does not know: spaces' values (`values`), actions (`heads`).
"""

from __future__ import annotations

import timeit
from collections.abc import Mapping
from functools import partial
from threading import Timer
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from gradwire.server.engines.policy.manifest import HEAD_OUTPUTS, BundleError, Network
from gradwire.server.engines.policy.onnx_scan import OnnxScanError, scan_onnx
from gradwire.server.engines.policy.spaces import Box, MultiBinary, MultiDiscrete, elements, leaves

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

_NUMPY: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bool)": np.dtype(np.bool_),
    **{f"tensor({name})": np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64")},
}
_PROBE_ROWS = (1, 3)  # one row, as exporters fold dimensions of 1 away
_MOST_SECONDS = 30.0
_INLINE_SECONDS = 150e-6


class RunError(RuntimeError):
    """ONNX Runtime refused or failed a run."""


class OnnxNetwork:
    """A network that can run. Thread-safe, as ONNX Runtime's sessions are."""

    def __init__(self, name: str, spec: Network, data: bytes, *, threads: int = 1) -> None:
        """Loads and probes the graph; BundleError when it is not what the manifest says.

        Args:
            name: its name in the manifest.
            data: the ONNX file.
            threads: threads of one run. With 1 it runs in the thread that asks.
        """
        self.name = name
        self.spec = spec
        self._session, operators = _session(name, spec.file, data, threads)
        self._loops = b"Loop" in operators
        self._input_dtypes: dict[str, np.dtype[Any]] = {}
        self._row_shapes = _row_shapes(spec)
        self._outputs = _outputs(spec)
        try:
            self._check_inputs()
            self._check_outputs()
            self._probe()
        except (UnicodeDecodeError, MemoryError) as error:  # a name that is no text; arrays beyond this machine
            raise BundleError(spec.file, f"networks.{name}.file", f"cannot be loaded: {error}") from error

    @property
    def input_dtypes(self) -> Mapping[str, np.dtype[Any]]:
        """What each input's array has to be."""
        return self._input_dtypes

    def initial_state(self, rows: int) -> Arrays:
        """The initial hidden state, by name: (rows, *shape) each."""
        states: Arrays = {}
        for name, state in self.spec.states.items():
            dtype = self._input_dtypes[f"state.{name}"]
            initial = np.array(state.initial, dtype)
            row = initial.reshape(state.shape) if initial.ndim else np.full(state.shape, initial, dtype)
            states[name] = np.repeat(row[None], rows, axis=0)
        return states

    def run(self, feeds: Arrays) -> Arrays:
        """Outputs by name, of inputs by name, all with the same number of rows first."""
        return self._run_in_time(feeds) if self._loops else self._run(feeds)

    def _run_in_time(self, feeds: Arrays) -> Arrays:
        """How long a graph loops may depend on what it is given. ONNX Runtime heeds `terminate` between operators."""
        options = onnxruntime.RunOptions()
        watchdog = Timer(_MOST_SECONDS, setattr, (options, "terminate", True))
        watchdog.daemon = True
        watchdog.start()
        try:
            return self._run(feeds, options)
        except RunError as error:
            if options.terminate:
                raise RunError(f"network {self.name} was stopped after {_MOST_SECONDS:g} s") from error
            raise
        finally:
            watchdog.cancel()

    def _run(self, feeds: Arrays, options: Any = None) -> Arrays:
        try:
            found = self._session.run(self._outputs, feeds, options)
        except Exception as error:  # ONNX Runtime's exceptions have no common base but this
            raise RunError(f"network {self.name} failed: {str(error)[:500]}") from error
        return dict(zip(self._outputs, found, strict=True))

    def fast_rows(self) -> int:
        """The most rows, of those tried, that run in 150 microseconds: less than it takes to ask another thread."""
        fast = 0
        if self._loops:
            return fast  # zeros may be fast, and what callers send not
        for rows in (1, 8, 64, 256):
            feeds = self._zeros(rows)
            if min(timeit.repeat(partial(self.run, feeds), number=1, repeat=4)) > _INLINE_SECONDS:
                break
            fast = rows
        return fast

    def _zeros(self, rows: int) -> Arrays:
        feeds = {name: np.zeros((rows, *shape), self._input_dtypes[name]) for name, shape in self._row_shapes.items()}
        return feeds | {f"state.{name}": value for name, value in self.initial_state(rows).items()}

    def _check_inputs(self) -> None:
        found = {node.name: node for node in self._session.get_inputs()}
        if set(found) != set(self._row_shapes):
            self._fail(
                "observation_space",
                f"asks for the inputs {sorted(self._row_shapes)}, but the graph has {sorted(found)}",
            )
        for name, node in found.items():
            if node.type not in _NUMPY:
                self._fail("file", f"input {name} is a {node.type}; it must be one of {', '.join(_NUMPY)}")
            self._input_dtypes[name] = _NUMPY[node.type]
            wanted = self._row_shapes[name]
            if len(node.shape) != len(wanted) + 1 or any(
                isinstance(dim, int) and dim != want for dim, want in zip(node.shape[1:], wanted, strict=True)
            ):
                self._fail("file", f"input {name} has shape {node.shape}; the manifest says [batch, {_dims(wanted)}]")
            if isinstance(node.shape[0], int):
                self._fail("file", f"input {name} takes {node.shape[0]} rows only; its first dimension must be free")

    def _check_outputs(self) -> None:
        found = {node.name for node in self._session.get_outputs()}
        missing = sorted(set(self._outputs) - found)
        if missing:
            self._fail("file", f"the graph has no output {missing[0]}; it has {sorted(found)}")

    def _probe(self) -> None:
        """Runs it once: shapes in a graph are claims, and a graph that cannot run should not wait for a caller."""
        for rows in _PROBE_ROWS:
            self._probe_with(rows)

    def _probe_with(self, rows: int) -> None:
        try:
            outputs = self._run_in_time(self._zeros(rows))
        except RunError as error:
            self._fail("file", f"does not run on {rows} rows of zeros: {error}")
        for name, shape in self._output_shapes().items():
            found = outputs[name]
            if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":
                self._fail("file", f"output {name} is no array of numbers")
            if found.shape[:1] != (rows,) or (shape is not None and found.shape[1:] != shape):
                wanted = "..." if shape is None else _dims(shape)
                self._fail(
                    "file",
                    f"output {name} has shape {list(found.shape)} for {rows} rows; it must be [batch, {wanted}]",
                )
            if name.startswith("next_state.") and found.dtype != self._input_dtypes[name.removeprefix("next_")]:
                self._fail("file", f"output {name} is {found.dtype}, but input {name.removeprefix('next_')} is not")

    def _output_shapes(self) -> dict[str, tuple[int, ...] | None]:
        width = _action_width(self.spec)
        shapes: dict[str, tuple[int, ...] | None] = dict.fromkeys(self._outputs, (width,) if self.spec.head else None)
        return shapes | {f"next_state.{name}": state.shape for name, state in self.spec.states.items()}

    def _fail(self, field: str, description: str) -> None:
        raise BundleError(self.spec.file, f"networks.{self.name}.{field}", description)


def _session(name: str, file: str, data: bytes, threads: int) -> tuple[Any, set[bytes]]:
    try:
        operators = scan_onnx(data)
    except OnnxScanError as error:
        raise BundleError(file, "", str(error)) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads that spin would take the cores of the engines beside this one.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]), operators
    except Exception as error:  # as above
        raise BundleError(file, f"networks.{name}.file", f"cannot be loaded: {str(error)[:500]}") from error


def _row_shapes(spec: Network) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        name: tuple(leaf.shape) for name, leaf in leaves(spec.observation_space, "obs")
    }
    return shapes | {f"state.{name}": state.shape for name, state in spec.states.items()}


def _outputs(spec: Network) -> list[str]:
    heads = HEAD_OUTPUTS[spec.head] if spec.head else spec.outputs
    return [*heads, *(f"next_state.{name}" for name in spec.states)]


def _action_width(spec: Network) -> int:
    """Numbers that a head's output has for one row."""
    space = spec.action_space
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    if isinstance(space, Box | MultiBinary):
        return elements(space.shape)
    return space.n if space else 0


def _dims(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape)) or "nothing more"
