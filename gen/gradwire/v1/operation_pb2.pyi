from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class OperationId(_message.Message):
    __slots__ = ("request_id", "sequence_number")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    sequence_number: int
    def __init__(self, request_id: _Optional[str] = ..., sequence_number: _Optional[int] = ...) -> None: ...
