"""The methods that the door serves, as the generated code registers them with a gRPC server.

`add_XServicer_to_server(servicer, table)` fills the table: both doors have the same methods of the same servicers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from gradwire.server.rpc.interceptors.around import handler_function


@dataclass(frozen=True, slots=True)
class Method:
    """One method and the servicer's function behind it."""

    path: str  # "/gradwire.v1.SamplingService/Generate"
    function: Any
    request: type[Message]
    streams_requests: bool
    streams_responses: bool

    @property
    def streams(self) -> bool:
        """Its bodies are envelopes."""
        return self.streams_requests or self.streams_responses


class MethodTable:
    """Looks like a grpc server to the generated `add_..._to_server` functions."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same handlers come again, with their names, by `add_registered_method_handlers`."""

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take a service's methods."""
        service = Default().FindServiceByName(service_name)
        for name, handler in method_handlers.items():
            path = f"/{service_name}/{name}"
            self._methods[path] = Method(
                path,
                handler_function(handler),
                GetMessageClass(service.FindMethodByName(name).input_type),
                handler.request_streaming,
                handler.response_streaming,
            )

    def find(self, path: str) -> Method | None:
        """The method at a path."""
        return self._methods.get(path)
