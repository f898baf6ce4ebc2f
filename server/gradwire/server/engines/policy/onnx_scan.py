"""Looks through an ONNX file's bytes before ONNX Runtime does, for what a bundle may not have.

Refused: data in other files (ONNX Runtime would open the path that the file names), operators outside of ONNX's own
domains, and nesting beyond any honest graph's. Reads protobuf's wire format by field numbers of onnx.proto3
(onnx/onnx.proto3 in the ONNX repository); knows nothing of what operators do.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_DEPTH = 64
ALLOWED_DOMAINS = frozenset({b"", b"ai.onnx", b"ai.onnx.ml"})

# For each message: the fields that hold messages to look through, by number.
_CHILDREN: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 8: "OperatorSet", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 9: "OperatorSet", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor", 23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
    "OperatorSet": {},
}
_DOMAIN_FIELD = {"Node": 7, "OperatorSet": 1}
_OPERATOR_FIELD = 4  # of a node
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # of a tensor


class OnnxScanError(ValueError):
    """Not an ONNX file that a bundle may have."""


def scan_onnx(data: bytes) -> set[bytes]:
    """The operators that it uses. Raises OnnxScanError unless the bytes are a model that keeps to itself."""
    operators: set[bytes] = set()
    seen = _scan(memoryview(data), "Model", 0, operators)
    if 7 not in seen:
        raise OnnxScanError("is not an ONNX model: it has no graph")
    return operators


def _scan(data: memoryview, message: str, level: int, operators: set[bytes]) -> set[int]:
    if level > MAX_DEPTH:
        raise OnnxScanError(f"has graphs in each other more than {MAX_DEPTH} deep")
    children, domain_field, seen = _CHILDREN[message], _DOMAIN_FIELD.get(message), set()
    for number, value in _fields(data):
        seen.add(number)
        if message == "Tensor" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value == 1)):
            raise OnnxScanError("keeps tensors in another file; save it with all data inside")
        if isinstance(value, int):
            continue
        if number == domain_field and bytes(value) not in ALLOWED_DOMAINS:
            raise OnnxScanError(f"uses operators of the domain {bytes(value)[:100]!r}; only ONNX's own are taken")
        if number in children:
            _scan(value, children[number], level + 1, operators)
        if message == "Node" and number == _OPERATOR_FIELD:
            operators.add(bytes(value))
    return seen


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: an int of a varint, the bytes of all else."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise OnnxScanError("is not an ONNX model: its bytes are no protobuf message")
        if at + length > end:
            raise OnnxScanError("is cut short")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise OnnxScanError("is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise OnnxScanError("is not an ONNX model: its bytes are no protobuf message")
