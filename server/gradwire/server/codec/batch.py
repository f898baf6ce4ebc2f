"""TrainingBatch messages <-> the trainer's rows without padding, and outputs back onto the grid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gradwire.server.codec.shared import SharedReads, refuse
from gradwire.server.codec.tensor import (
    Array,
    array_to_ragged,
    array_to_tensor,
    ragged_to_array,
    tensor_to_array,
)
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.v1 import tensor_pb2, training_pb2

# Proto field -> column of the engine's batch.
_COLUMNS = {
    "advantages": "advantages",
    "old_log_probs_shifted": "old_log_probs",
    "prox_logp_shifted": "prox_log_probs",
    "ref_log_probs_shifted": "ref_log_probs",
}
# Names of the engine -> paths in the request.
_FIELDS = {f"batch.{name}": f"batch.{field}" for field, name in _COLUMNS.items()} | {"lr": "learning_rate"}

_NO_MASK = "no loss_mask: all real tokens but each row's last one count"
_NO_MASKS = f"{_NO_MASK}; no attention_mask either: every token of a row is real and is trained on, padding too"


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Where the real tokens stand in the caller's grid; turns flat outputs back into it."""

    offsets: npt.NDArray[np.int64]
    dense_mask: npt.NDArray[np.bool_] | None  # [B, S], None for ragged rows

    def encode(self, values: npt.NDArray[np.float32] | None) -> tensor_pb2.BatchTensor | None:
        """Flat values as a BatchTensor in the caller's layout, 0 on padding."""
        if values is None:
            return None
        if self.dense_mask is None:
            return tensor_pb2.BatchTensor(ragged=array_to_ragged(values, self.offsets))
        grid = np.zeros(self.dense_mask.shape, dtype=np.float32)
        grid[self.dense_mask] = values  # row-major, as the rows were laid end to end
        return tensor_pb2.BatchTensor(dense=array_to_tensor(grid))


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch for the engine, how to lay out its outputs, and what was assumed."""

    batch: TrainingBatch
    layout: BatchLayout
    warnings: tuple[str, ...]


class _Decoder:
    """Reads the columns of one message onto one common layout."""

    def __init__(self, message: training_pb2.TrainingBatch, path: str) -> None:
        self.message = message
        self.path = path
        ids = message.input_ids
        self.dense_shape: tuple[int, int] | None = None
        self.mask: npt.NDArray[np.bool_] | None = None
        where = f"{path}.input_ids"
        match ids.WhichOneof("layout"):
            case "dense":
                self._dense(where)
            case "ragged":
                self._ragged(where)
            case _:
                raise InvalidArgument.at(where, "is required: dense [rows, width] or ragged")
        if not np.issubdtype(self.input_ids.dtype, np.integer):
            raise InvalidArgument.at(where, f"holds {self.input_ids.dtype}; token ids are int32 or int64")
        self._check_ids(where)
        empty = np.flatnonzero(np.diff(self.offsets) == 0)
        if len(empty):
            raise InvalidArgument.at(where, f"row {empty[0]} has no real token; leave such rows out")

    def _check_ids(self, where: str) -> None:
        ids = self.input_ids
        if not len(ids) or (ids.min() >= 0 and ids.max() <= 2**31 - 1):
            return
        first = int(np.argmax((ids < 0) | (ids > 2**31 - 1)))
        if self.mask is not None:
            row, position = (int(index[first]) for index in np.nonzero(self.mask))
        else:
            row = int(np.searchsorted(self.offsets, first, side="right")) - 1
            position = first - int(self.offsets[row])
        hint = (
            "; what does not count in the loss keeps its token here and has loss_mask 0"
            + (", padding has attention_mask 0" if self.mask is not None else "")
            if ids[first] < 0
            else ""
        )
        raise InvalidArgument.at(
            where, f"row {row}, position {position} holds {ids[first]}; token ids are 0 to 2^31 - 1{hint}"
        )

    def _dense(self, where: str) -> None:
        array = tensor_to_array(self.message.input_ids.dense, f"{where}.dense")
        if array.ndim != 2 or 0 in array.shape:
            raise InvalidArgument.at(
                f"{where}.dense.shape", f"is {list(array.shape)}; it takes [rows, width], none of them 0"
            )
        self.dense_shape = (array.shape[0], array.shape[1])
        self.mask = self._attention_mask(array.shape)
        self.width = array.shape[1]
        self.offsets = np.concatenate([[0], np.cumsum(self.mask.sum(axis=1))]).astype(np.int64)
        self.input_ids = array[self.mask]

    def _attention_mask(self, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        if not self.message.HasField("attention_mask"):
            return np.ones(shape, dtype=np.bool_)
        where = f"{self.path}.attention_mask"
        mask = tensor_to_array(self.message.attention_mask, where)
        if mask.shape != shape:
            raise InvalidArgument.at(where, f"has shape {list(mask.shape)}, input_ids has {list(shape)}")
        if not np.isin(mask, (0, 1)).all():
            raise InvalidArgument.at(where, "holds values other than 0 and 1")
        real = mask.astype(np.bool_)
        # A gap would make neighbours of tokens that are none.
        starts = np.diff(np.pad(real.astype(np.int8), ((0, 0), (1, 0))), axis=1) == 1
        gaps = np.flatnonzero(starts.sum(axis=1) > 1)
        if len(gaps):
            raise InvalidArgument.at(where, f"row {gaps[0]} has padding between real tokens; pad on one side only")
        return real

    def _ragged(self, where: str) -> None:
        if self.message.HasField("attention_mask"):
            raise InvalidArgument.at(f"{self.path}.attention_mask", "has no meaning for ragged rows; leave it out")
        self.input_ids, self.offsets = ragged_to_array(self.message.input_ids.ragged, f"{where}.ragged")
        self.width = int(np.diff(self.offsets).max())

    def column(self, field: str) -> Array | None:
        """A column's values on the flat rows, None when it is absent."""
        if not self.message.HasField(field):
            return None
        where = f"{self.path}.{field}"
        tensor: tensor_pb2.BatchTensor = getattr(self.message, field)
        layout = tensor.WhichOneof("layout")
        wanted = "dense" if self.mask is not None else "ragged"
        if layout != wanted:
            raise InvalidArgument.at(where, f"is {layout or 'empty'}, but input_ids is {wanted}; use one layout")
        if self.mask is not None:
            array = tensor_to_array(tensor.dense, f"{where}.dense")
            if array.shape != self.dense_shape:
                raise InvalidArgument.at(
                    where, f"has shape {list(array.shape)}, input_ids has {list(self.dense_shape or ())}"
                )
            return array[self.mask] if field != "loss_mask" else self._checked_mask(array)
        values, offsets = ragged_to_array(tensor.ragged, f"{where}.ragged")
        if not np.array_equal(offsets, self.offsets):
            raise InvalidArgument.at(where, "has rows of other lengths than input_ids")
        return values

    def _checked_mask(self, array: Array) -> Array:
        assert self.mask is not None
        rows = np.flatnonzero(((array != 0) & ~self.mask).any(axis=1))
        if len(rows):
            raise InvalidArgument.at(f"{self.path}.loss_mask", f"row {rows[0]} counts padding; it must be 0 there")
        return array[self.mask]


def _float32(values: Array) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # too large for float32 is infinite, which is judged where it matters
        return np.ascontiguousarray(values, dtype=np.float32)


def _loss_mask(decoder: _Decoder) -> npt.NDArray[np.float32] | None:
    values = decoder.column("loss_mask")
    if values is None:
        return None
    mask = _float32(values)
    where = f"{decoder.path}.loss_mask"
    if not np.isfinite(mask).all() or bool((mask < 0).any()):
        raise InvalidArgument.at(where, "holds a negative or non-finite weight")
    last = decoder.offsets[1:] - 1
    counted = np.flatnonzero(mask[last])
    if len(counted):
        raise InvalidArgument.at(
            where,
            f"row {counted[0]} counts its last token, which predicts nothing: on the shifted grid entry i belongs "
            "to the prediction of token i + 1 (labels = roll(input_ids, -1)); shift the mask left by one",
        )
    if not mask.any():
        raise InvalidArgument.at(where, "is 0 everywhere: no token would count")
    return mask


def _versions(decoder: _Decoder) -> npt.NDArray[np.float32] | None:
    """Versions travel as float32 like all columns; which of them count is judged with the mask."""
    values = decoder.column("versions")
    if values is not None and not np.issubdtype(values.dtype, np.integer):
        raise InvalidArgument.at(
            f"{decoder.path}.versions", f"holds {values.dtype}; weight versions are int32 or int64"
        )
    return None if values is None else _float32(values)


def _prompt_group_ids(decoder: _Decoder) -> npt.NDArray[np.int64] | None:
    if not decoder.message.HasField("prompt_group_ids"):
        return None
    where = f"{decoder.path}.prompt_group_ids"
    groups = tensor_to_array(decoder.message.prompt_group_ids, where)
    rows = len(decoder.offsets) - 1
    if groups.shape != (rows,) or not np.issubdtype(groups.dtype, np.integer):
        raise InvalidArgument.at(
            where, f"is {groups.dtype} {list(groups.shape)}; it is one integer for each of the {rows} rows"
        )
    return groups.astype(np.int64)


def take_in(message: training_pb2.TrainingBatch, path: str, shared: SharedReads | None) -> None:
    """Put into the message the bytes that lie in shared memory: it is then the same payload as one sent with its bytes.

    The operation log tells payloads apart by their content, and a segment's name says nothing of that. Costs copies:
    call it in a thread. None refuses shared memory.
    """
    for field, value in message.ListFields():
        where = f"{path}.{field.name}"
        if isinstance(value, tensor_pb2.BatchTensor):
            value, where = value.dense, f"{where}.dense"
        if value.WhichOneof("storage") != "shared_memory":
            continue
        if shared is None:
            raise refuse(where)
        raw = shared.take(value.shared_memory, f"{where}.shared_memory")
        shared.read_now()
        value.data = raw.tobytes()


def decode_batch(message: training_pb2.TrainingBatch, path: str = "batch") -> DecodedBatch:
    """The engine's batch. Raises InvalidArgument naming the column, and the row where there is one.

    Costs a copy of each column: call it in a thread for megabytes.
    """
    decoder = _Decoder(message, path)
    columns: dict[str, npt.NDArray[np.float32]] = {}
    for field, name in _COLUMNS.items():
        values = decoder.column(field)
        if values is not None:
            columns[name] = _float32(values)
    versions = _versions(decoder)
    if versions is not None:
        columns["versions"] = versions
    mask = _loss_mask(decoder)
    warnings = []
    if mask is None:
        if not bool((np.diff(decoder.offsets) > 1).any()):
            raise InvalidArgument([FieldViolation(f"{path}.input_ids", "no row has two tokens: nothing to predict")])
        warnings.append(_NO_MASK if message.HasField("attention_mask") or decoder.mask is None else _NO_MASKS)
        mask = np.ones(len(decoder.input_ids), dtype=np.float32)
        mask[decoder.offsets[1:] - 1] = 0
    batch = TrainingBatch(
        input_ids=decoder.input_ids.astype(np.int32),
        row_offsets=decoder.offsets,
        row_width=decoder.width,
        loss_mask=mask,
        columns=columns,
        prompt_group_ids=_prompt_group_ids(decoder),
    )
    return DecodedBatch(batch, BatchLayout(decoder.offsets, decoder.mask), tuple(warnings))


@contextmanager
def in_request_terms() -> Iterator[None]:
    """An engine's InvalidArgument, with its own names of columns as the request's."""
    try:
        yield
    except InvalidArgument as error:
        violations = [FieldViolation(_FIELDS.get(v.field, v.field), v.description) for v in error.violations]
        raise InvalidArgument(violations, reason=error.reason, metadata=error.metadata) from error


def fill_column(decoded: DecodedBatch, name: str, value: float, warning: str) -> DecodedBatch:
    """The batch with a column of one value, and a warning that says so."""
    column = np.full(len(decoded.batch.input_ids), value, dtype=np.float32)
    batch = replace(decoded.batch, columns={**decoded.batch.columns, name: column})
    return replace(decoded, batch=batch, warnings=(*decoded.warnings, warning))
