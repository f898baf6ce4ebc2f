from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from gradwire.v1 import weight_pb2 as _weight_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_INFERENCE: _ClassVar[Scope]
    SCOPE_TRAINING: _ClassVar[Scope]
    SCOPE_ADMIN: _ClassVar[Scope]

class TokenKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_KIND_UNSPECIFIED: _ClassVar[TokenKind]
    TOKEN_KIND_PROFILE: _ClassVar[TokenKind]
    TOKEN_KIND_ORGANIZATION: _ClassVar[TokenKind]
SCOPE_UNSPECIFIED: Scope
SCOPE_INFERENCE: Scope
SCOPE_TRAINING: Scope
SCOPE_ADMIN: Scope
TOKEN_KIND_UNSPECIFIED: TokenKind
TOKEN_KIND_PROFILE: TokenKind
TOKEN_KIND_ORGANIZATION: TokenKind

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCapabilitiesResponse(_message.Message):
    __slots__ = ("version", "services", "device", "max_message_bytes", "max_upload_bytes", "losses", "weight_transports", "shared_memory", "model", "engines", "http_url")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_UPLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    HTTP_URL_FIELD_NUMBER: _ClassVar[int]
    version: str
    services: _containers.RepeatedScalarFieldContainer[str]
    device: str
    max_message_bytes: int
    max_upload_bytes: int
    losses: _containers.RepeatedCompositeFieldContainer[LossInfo]
    weight_transports: _containers.RepeatedScalarFieldContainer[_weight_pb2.WeightTransport]
    shared_memory: bool
    model: str
    engines: _containers.RepeatedScalarFieldContainer[str]
    http_url: str
    def __init__(self, version: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., device: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., max_upload_bytes: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[LossInfo, _Mapping]]] = ..., weight_transports: _Optional[_Iterable[_Union[_weight_pb2.WeightTransport, str]]] = ..., shared_memory: bool = ..., model: _Optional[str] = ..., engines: _Optional[_Iterable[str]] = ..., http_url: _Optional[str] = ...) -> None: ...

class LossInfo(_message.Message):
    __slots__ = ("name", "aliases", "config_keys", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_KEYS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    config_keys: _containers.RepeatedScalarFieldContainer[str]
    description: str
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., config_keys: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("token_id", "description", "kind", "tenant", "scopes", "created_at", "expires_at", "revoked_at", "user")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    description: str
    kind: TokenKind
    tenant: str
    scopes: _containers.RepeatedScalarFieldContainer[Scope]
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    user: str
    def __init__(self, token_id: _Optional[str] = ..., description: _Optional[str] = ..., kind: _Optional[_Union[TokenKind, str]] = ..., tenant: _Optional[str] = ..., scopes: _Optional[_Iterable[_Union[Scope, str]]] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., revoked_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., user: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("description", "kind", "tenant", "scopes", "lifetime", "user")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    description: str
    kind: TokenKind
    tenant: str
    scopes: _containers.RepeatedScalarFieldContainer[Scope]
    lifetime: _duration_pb2.Duration
    user: str
    def __init__(self, description: _Optional[str] = ..., kind: _Optional[_Union[TokenKind, str]] = ..., tenant: _Optional[str] = ..., scopes: _Optional[_Iterable[_Union[Scope, str]]] = ..., lifetime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., user: _Optional[str] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    token: Token
    secret: str
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("tenant", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens", "next_page_token")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    next_page_token: str
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
