from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from gradwire.v1 import operation_pb2 as _operation_pb2
from gradwire.v1 import sampling_pb2 as _sampling_pb2
from gradwire.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WeightTransport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHT_TRANSPORT_UNSPECIFIED: _ClassVar[WeightTransport]
    WEIGHT_TRANSPORT_SHARED_MEMORY: _ClassVar[WeightTransport]
    WEIGHT_TRANSPORT_CUDA_IPC: _ClassVar[WeightTransport]
    WEIGHT_TRANSPORT_NCCL: _ClassVar[WeightTransport]
    WEIGHT_TRANSPORT_FILE: _ClassVar[WeightTransport]
WEIGHT_TRANSPORT_UNSPECIFIED: WeightTransport
WEIGHT_TRANSPORT_SHARED_MEMORY: WeightTransport
WEIGHT_TRANSPORT_CUDA_IPC: WeightTransport
WEIGHT_TRANSPORT_NCCL: WeightTransport
WEIGHT_TRANSPORT_FILE: WeightTransport

class SyncRequest(_message.Message):
    __slots__ = ("training_job_id", "sampling_job_id", "operation", "in_flight", "transport", "low_memory", "verify", "log_prob_job_id", "adapter", "merge")
    TRAINING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    LOW_MEMORY_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    training_job_id: int
    sampling_job_id: int
    operation: _operation_pb2.OperationId
    in_flight: _sampling_pb2.InFlightPolicy
    transport: WeightTransport
    low_memory: bool
    verify: bool
    log_prob_job_id: int
    adapter: str
    merge: bool
    def __init__(self, training_job_id: _Optional[int] = ..., sampling_job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ..., in_flight: _Optional[_Union[_sampling_pb2.InFlightPolicy, str]] = ..., transport: _Optional[_Union[WeightTransport, str]] = ..., low_memory: bool = ..., verify: bool = ..., log_prob_job_id: _Optional[int] = ..., adapter: _Optional[str] = ..., merge: bool = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("weight_version", "size_bytes", "num_tensors", "transport", "export_time", "pause_time", "total_time", "adapter")
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_TENSORS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    EXPORT_TIME_FIELD_NUMBER: _ClassVar[int]
    PAUSE_TIME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TIME_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    weight_version: int
    size_bytes: int
    num_tensors: int
    transport: WeightTransport
    export_time: _duration_pb2.Duration
    pause_time: _duration_pb2.Duration
    total_time: _duration_pb2.Duration
    adapter: str
    def __init__(self, weight_version: _Optional[int] = ..., size_bytes: _Optional[int] = ..., num_tensors: _Optional[int] = ..., transport: _Optional[_Union[WeightTransport, str]] = ..., export_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., pause_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., total_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., adapter: _Optional[str] = ...) -> None: ...

class UnloadAdapterRequest(_message.Message):
    __slots__ = ("sampling_job_id", "adapter")
    SAMPLING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    sampling_job_id: int
    adapter: str
    def __init__(self, sampling_job_id: _Optional[int] = ..., adapter: _Optional[str] = ...) -> None: ...

class UnloadAdapterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("name", "dtype", "shape", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _tensor_pb2.DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    sha256: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class BeginUpdateRequest(_message.Message):
    __slots__ = ("sampling_job_id", "manifest", "weight_version", "timeout", "log_prob_job_id")
    SAMPLING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    sampling_job_id: int
    manifest: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    weight_version: int
    timeout: _duration_pb2.Duration
    log_prob_job_id: int
    def __init__(self, sampling_job_id: _Optional[int] = ..., manifest: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., weight_version: _Optional[int] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., log_prob_job_id: _Optional[int] = ...) -> None: ...

class BeginUpdateResponse(_message.Message):
    __slots__ = ("update_id", "total_bytes")
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    update_id: str
    total_bytes: int
    def __init__(self, update_id: _Optional[str] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class TransferUpdateRequest(_message.Message):
    __slots__ = ("update_id", "name", "offset", "data")
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    update_id: str
    name: str
    offset: int
    data: bytes
    def __init__(self, update_id: _Optional[str] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class TransferUpdateResponse(_message.Message):
    __slots__ = ("received_bytes", "complete_tensors")
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TENSORS_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    complete_tensors: int
    def __init__(self, received_bytes: _Optional[int] = ..., complete_tensors: _Optional[int] = ...) -> None: ...

class CommitUpdateRequest(_message.Message):
    __slots__ = ("update_id", "in_flight")
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    update_id: str
    in_flight: _sampling_pb2.InFlightPolicy
    def __init__(self, update_id: _Optional[str] = ..., in_flight: _Optional[_Union[_sampling_pb2.InFlightPolicy, str]] = ...) -> None: ...

class CommitUpdateResponse(_message.Message):
    __slots__ = ("weight_version", "pause_time")
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PAUSE_TIME_FIELD_NUMBER: _ClassVar[int]
    weight_version: int
    pause_time: _duration_pb2.Duration
    def __init__(self, weight_version: _Optional[int] = ..., pause_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AbortUpdateRequest(_message.Message):
    __slots__ = ("update_id",)
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    update_id: str
    def __init__(self, update_id: _Optional[str] = ...) -> None: ...

class AbortUpdateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetNormRequest(_message.Message):
    __slots__ = ("job_id", "adapter")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    adapter: str
    def __init__(self, job_id: _Optional[int] = ..., adapter: _Optional[str] = ...) -> None: ...

class GetNormResponse(_message.Message):
    __slots__ = ("norm", "weight_version")
    NORM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    norm: float
    weight_version: int
    def __init__(self, norm: _Optional[float] = ..., weight_version: _Optional[int] = ...) -> None: ...

class GetChecksumsRequest(_message.Message):
    __slots__ = ("job_id", "dtype", "adapter", "merged")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    dtype: _tensor_pb2.DataType
    adapter: str
    merged: bool
    def __init__(self, job_id: _Optional[int] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., adapter: _Optional[str] = ..., merged: bool = ...) -> None: ...

class GetChecksumsResponse(_message.Message):
    __slots__ = ("checksums", "weight_version")
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    checksums: _containers.RepeatedCompositeFieldContainer[TensorChecksum]
    weight_version: int
    def __init__(self, checksums: _Optional[_Iterable[_Union[TensorChecksum, _Mapping]]] = ..., weight_version: _Optional[int] = ...) -> None: ...

class TensorChecksum(_message.Message):
    __slots__ = ("name", "dtype", "shape", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _tensor_pb2.DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    sha256: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ("job_id", "adapter")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    adapter: str
    def __init__(self, job_id: _Optional[int] = ..., adapter: _Optional[str] = ...) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("weight_version", "since")
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    weight_version: int
    since: _timestamp_pb2.Timestamp
    def __init__(self, weight_version: _Optional[int] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
