"""The doors of a server: health per service, reflection, metrics over HTTP, TLS, and what is never opened."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from grpc import StatusCode, aio, ssl_channel_credentials
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gradwire.client import TLSConfig
from gradwire.client.arena import Agent, ArenaInferenceError
from gradwire.client.config import RetryConfig
from gradwire.server.app import App
from gradwire.server.config import Settings
from gradwire.server.services import SERVICES
from gradwire.v1 import admin_pb2, admin_pb2_grpc, sampling_pb2
from tests.certificate import Certificate
from tests.fake_engines import FakeEngines
from tests.rpc.support import Served, failure, serving, text_prompt

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def with_http(tmp_path: Path) -> AsyncIterator[Served]:
    """A server with the operator's door."""
    async with serving(tmp_path, http="127.0.0.1:0") as running:
        yield running


async def get(served: Served, path: str) -> tuple[int, str]:
    """Status and text of an HTTP answer."""

    def fetch() -> tuple[int, str]:
        connection = http.client.HTTPConnection(served.app.http_address)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    return await asyncio.to_thread(fetch)


async def test_each_service_has_a_health_of_its_own(served: Served) -> None:
    health = health_pb2_grpc.HealthStub(served.channel)
    for service in ("", *SERVICES):
        assert (await health.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING
    unknown = await failure(health.Check(health_pb2.HealthCheckRequest(service="nothing")))
    assert unknown.code is StatusCode.NOT_FOUND


async def test_when_the_sampler_dies_only_sampling_is_unhealthy(served: Served) -> None:
    health = health_pb2_grpc.HealthStub(served.channel)
    watch = aiter(health.Watch(health_pb2.HealthCheckRequest(service="gradwire.v1.SamplingService")))
    assert (await anext(watch)).status == SERVING
    served.engines.samplers[0].dead = "killed"
    served.app.monitor.look_after_all()
    assert (await anext(watch)).status == NOT_SERVING
    for service in ("", "gradwire.v1.TrainingService"):
        assert (await health.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING


async def test_reflection_lists_the_services_and_describes_them(served: Served) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="gradwire.v1.SamplingService"),
    ]
    listed, described = [response async for response in stub.ServerReflectionInfo(iter(requests))]
    names = {service.name for service in listed.list_services_response.service}
    assert {*SERVICES, "grpc.health.v1.Health"} <= names
    (file, *_) = described.file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(file).service[0].name == "SamplingService"


async def test_reflection_can_be_off(tmp_path: Path) -> None:
    async with serving(tmp_path, reflection=False) as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        assert (await failure(call)).code is StatusCode.UNIMPLEMENTED


async def test_capabilities_say_what_the_server_is(served: Served) -> None:
    facts = await served.admin.GetCapabilities(admin_pb2.GetCapabilitiesRequest())
    assert set(facts.services) == set(SERVICES)
    assert facts.max_message_bytes == served.app.settings.limits.max_message_bytes
    losses = {loss.name: loss for loss in facts.losses}
    assert "eps_clip_higher" in losses["grpo"].config_keys
    assert "arctic_platform.rl.processors.grpo_loss" in losses["grpo"].aliases


async def test_http_health_follows_the_server(with_http: Served) -> None:
    status, text = await get(with_http, "/health")
    assert (status, json.loads(text)) == (200, {"serving": True, "jobs": {"sampling_job/1": "ready"}})
    with_http.engines.samplers[0].dead = "killed"
    for check in with_http.app.monitor.look_after_all():
        await check
    status, text = await get(with_http, "/health")
    assert (status, json.loads(text)["jobs"]) == (503, {"sampling_job/1": "failed"})
    assert (await get(with_http, "/other"))[0] == 404


async def test_metrics_count_calls_by_method_and_code(with_http: Served) -> None:
    await with_http.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")]))
    await failure(with_http.sampling.Generate(sampling_pb2.GenerateRequest()))
    await failure(with_http.raw("/gradwire.v1.Nothing/AtAll"))
    _, text = await get(with_http, "/metrics")
    method = 'rpc_method="/gradwire.v1.SamplingService/Generate"'
    counted = f"rpc_server_call_duration_seconds_count{{{method},rpc_response_status_code="
    assert f'{counted}"OK"}} 1.0' in text
    assert f'{counted}"INVALID_ARGUMENT"}} 1.0' in text
    assert f"rpc_server_active_calls{{{method}}} 0.0" in text
    assert "gradwire_sampled_tokens_total 3.0" in text
    assert "AtAll" not in text  # names that callers make up must not fill the memory


async def test_a_port_that_is_taken_is_an_error_that_says_so(served: Served, tmp_path: Path) -> None:
    for settings in (
        Settings(grpc=served.app.grpc_address, data_dir=tmp_path),
        Settings(grpc="127.0.0.1:0", http=served.app.grpc_address, data_dir=tmp_path),
    ):
        app = App(settings, FakeEngines(), lambda line: None)
        with pytest.raises(OSError, match="cannot listen on"):
            await app.start()
        await app.stop()


# TLS


TOKEN = {"name": "t", "sha256": hashlib.sha256(b"secret").hexdigest(), "scopes": ["INFERENCE"]}


async def test_tls_with_a_token_serves_other_hosts(tmp_path: Path, certificate: Certificate) -> None:
    cert, key = certificate
    async with serving(tmp_path, grpc="0.0.0.0:0", tls={"certificate": cert, "key": key}, tokens=[TOKEN]) as served:
        address = f"localhost:{served.app.grpc_address.rpartition(':')[2]}"
        async with aio.secure_channel(address, ssl_channel_credentials(cert.read_bytes())) as channel:
            secure = Served(served.app, served.engines, channel)
            request = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])
            assert (await failure(secure.sampling.Generate(request))).code is StatusCode.UNAUTHENTICATED
            await secure.sampling.Generate(request, metadata=aio.Metadata(("authorization", "Bearer secret")))
        async with aio.insecure_channel(address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            plain = await failure(stub.GetCapabilities(admin_pb2.GetCapabilitiesRequest()))
            assert plain.code is StatusCode.UNAVAILABLE


async def test_agents_over_tls(tmp_path: Path, certificate: Certificate) -> None:
    cert, key = certificate
    tls = {"certificate": cert, "key": key}
    options: dict[str, Any] = {"api_key": "secret", "tls": TLSConfig(root_certificates=cert)}

    def use(base: str) -> None:
        with Agent(f"{base}/chat", **options) as agent:
            text = "".join(stream := agent.generate_stream("ab"))
            assert text == "ba" and [s.session_id for s in agent.list_sessions()] == [stream.session_id]
            assert agent.delete_session(stream.session_id)
        with pytest.raises(ArenaInferenceError):  # a certificate that nobody vouches for
            Agent(f"{base}/chat", api_key="secret", retry=RetryConfig(max_attempts=1))

    chat = {"chat": {"llm": True}}
    doors = {"grpc": "0.0.0.0:0", "http": "127.0.0.1:0"}
    async with serving(tmp_path, **doors, tls=tls, tokens=[TOKEN], deployments=chat) as served:
        addresses = {"grpcs": served.app.grpc_address, "https": served.app.http_address}
        for scheme, address in addresses.items():
            assert address is not None
            await asyncio.to_thread(use, f"{scheme}://localhost:{address.rpartition(':')[2]}")


async def test_with_a_client_ca_callers_show_a_certificate(tmp_path: Path, certificate: Certificate) -> None:
    cert, key = certificate
    tls = {"certificate": cert, "key": key, "client_ca": cert}
    async with serving(tmp_path, tls=tls) as served:
        address = f"localhost:{served.app.grpc_address.rpartition(':')[2]}"
        bare = ssl_channel_credentials(cert.read_bytes())
        known = ssl_channel_credentials(cert.read_bytes(), key.read_bytes(), cert.read_bytes())
        for credentials, served_to in ((known, True), (bare, False)):
            async with aio.secure_channel(address, credentials) as channel:
                admin: Any = admin_pb2_grpc.AdminServiceStub(channel)
                call = admin.GetCapabilities(admin_pb2.GetCapabilitiesRequest())
                if served_to:
                    assert (await call).version
                else:
                    assert (await failure(call)).code is StatusCode.UNAVAILABLE


@pytest.mark.parametrize("door", ["grpc", "http"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "example.org"])
def test_a_door_to_other_hosts_takes_tls_and_tokens(door: str, host: str, certificate: Certificate) -> None:
    tls = {"certificate": certificate.chain, "key": certificate.key}
    for tokens in ((), (TOKEN,)):
        plain: dict[str, Any] = {door: f"{host}:1", "tokens": tokens}
        with pytest.raises(ValueError, match="can be reached from other hosts"):
            Settings(**plain)
        assert Settings(**{**plain, "tls": tls}).wants_tokens
    without_auth: dict[str, Any] = {door: f"{host}:1", "tls": tls, "insecure_no_auth": True}
    with pytest.raises(ValueError, match="insecure_no_auth is for this machine alone"):
        Settings(**without_auth)
