"""The door on fake engines: who may come in, how streams break, what is refused, and that nothing unknown is said."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.domain.deployments import Deployment, LanguageModel, PolicyBundle
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.errors import Unavailable
from gradwire.server.http.arena.npy import write_array
from gradwire.v1 import admin_pb2
from tests.arena.bundles import write_bundles
from tests.rpc.support import Served, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token

ROW = write_array(np.zeros((1, 4), np.float32))
ORGANIZATION = MemoryScope.ORGANIZATION


class Door:
    """A server's HTTP door, and a session with it."""

    def __init__(self, served: Served, session: aiohttp.ClientSession) -> None:
        self.served, self.session = served, session

    async def ask(
        self, path: str, body: Any = None, *, secret: str = "", verb: str = "", **headers: str
    ) -> tuple[int, Any, Any]:
        """Status, JSON (or text) and headers of an answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if secret:
            sent["authorization"] = f"Bearer {secret}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        verb = verb or ("GET" if body is None else "POST")
        async with self.session.request(verb, path, data=data, headers=sent) as response:
            kind, text = response.headers.get("content-type", ""), await response.text()
            return response.status, json.loads(text) if kind.startswith("application/json") else text, response.headers


async def opened(folder: Path, **settings: Any) -> AsyncIterator[Door]:
    write_bundles(folder / "data" / "bundles")
    async with (
        serving(folder, http="127.0.0.1:0", **settings) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as session,
    ):
        for name in ("cartpole", "iris"):
            await served.app.deployer.deploy(LOCAL_CALLER, name, PolicyBundle(name))
        await served.app.deployer.deploy(LOCAL_CALLER, "chat", LanguageModel())
        yield Door(served, session)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async for made in opened(tmp_path):
        yield made


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Door]:
    """Asks for tokens; "shared" is a chat of an organisation."""
    async for made in opened(tmp_path, tokens=[token(name) for name in SECRETS]):
        app = made.served.app
        await app.deployer.deploy(LOCAL_CALLER, "shared", LanguageModel(), memory_scope=ORGANIZATION)
        yield made


async def partner_key(door: Door) -> str:
    """An organisation's key, which acts for users that it names."""
    request = admin_pb2.CreateTokenRequest(
        tenant="acme", scopes=[admin_pb2.SCOPE_INFERENCE], kind=admin_pb2.TOKEN_KIND_ORGANIZATION
    )
    created = await door.served.admin.CreateToken(request, metadata=bearer(SECRETS["admin"]))
    return str(created.secret)


async def test_only_the_status_takes_no_credential(guarded: Door) -> None:
    status, found, _ = await guarded.ask("/deployments/chat/status")
    assert status == 200 and found.keys() == {"success", "deployment_id", "instance_id", "agent"}
    assert found["agent"].keys() == {"algo", "multi_agent", "llm", "recurrent", "supervised"}
    assert "/" not in found["agent"]["algo"]  # this host's folders are nobody's business
    for path, body in (
        ("/deployments/cartpole/get_action", {"obs": ROW}),
        ("/deployments/iris/predict", {"inputs": ROW}),
        ("/deployments/chat/generate", {"prompts": ["a"]}),
        ("/deployments/chat/generate_stream", {"prompt": "a"}),
        ("/deployments/chat/sessions", None),
        ("/deployments/chat/sessions/s", None),
        ("/api/cli/v1/inference/deployments/list", None),
        ("/api/cli/v1/inference/deployments/one?name=chat", None),
        ("/api/cli/v1/inference/deploy", {"experiment_name": "iris"}),
    ):
        status, found, _ = await guarded.ask(path, body)
        assert (status, found["code"]) == (401, "token_missing"), path
        status, found, _ = await guarded.ask(path, body, secret="nobody")
        assert (status, found["code"]) == (401, "token_unknown") and "nobody" not in str(found)
        if path.startswith("/deployments/"):
            status, found, _ = await guarded.ask(path, body, secret=SECRETS["admin"])
            assert (status, found["code"]) == (403, "missing_scope"), path
            assert "needs the scope INFERENCE; whoever has the scope admin makes one:" in found["detail"]
    assert guarded.served.engines.samplers[0].requests == []
    deploy = {"experiment_name": "iris"}
    status, found, _ = await guarded.ask("/api/cli/v1/inference/deploy", deploy, secret=SECRETS["reader"])
    assert (status, found["code"]) == (403, "missing_scope")
    status, found, _ = await guarded.ask("/api/cli/v1/inference/deploy", deploy, secret=SECRETS["admin"])
    assert status == 200 and found["ok"] and found["data"]["version"] == 2


async def test_users_of_an_organisation_share_what_its_scope_says(guarded: Door) -> None:
    key = await partner_key(guarded)
    for name, seen_by_both in (("chat", False), ("shared", True)):
        sessions = f"/deployments/{name}/sessions"
        body = {"prompts": ["hello"], "session_id": "s"}
        status, _, headers = await guarded.ask(
            f"/deployments/{name}/generate", body, secret=key, x_external_user_id="ann"
        )
        assert status == 200 and headers["x-gradwire-session-id"] == "s"
        _, anns, _ = await guarded.ask(sessions, secret=key, x_external_user_id="ann")
        assert [row["session_id"] for row in anns] == ["s"]
        _, bobs, _ = await guarded.ask(sessions, secret=key, x_external_user_id="bob")
        assert bobs == (anns if seen_by_both else [])
        assert (await guarded.ask(sessions, secret=SECRETS["reader"]))[1] == []
        # Another's session, one that never was, and one that could not be look the same.
        for session_id, user in (("s", "bob"), ("never", "ann"), ("a%2F..%2Fb", "ann")):
            if session_id == "s" and seen_by_both:
                continue
            for verb in ("GET", "DELETE"):
                status, found, _ = await guarded.ask(
                    f"{sessions}/{session_id}", secret=key, verb=verb, x_external_user_id=user
                )
                assert (status, found) == (404, {"detail": "unknown session_id", "code": "session_not_found"})
        for user, wanted in (("ann", 204), ("ann", 404)):
            answer = await guarded.ask(f"{sessions}/s", secret=key, verb="DELETE", x_external_user_id=user)
            assert answer[0] == wanted
    status, found, _ = await guarded.ask("/deployments/chat/sessions", secret=key)
    assert status == 401 and "x-external-user-id" in found["detail"]


async def test_a_server_without_tokens_is_for_this_host_alone(door: Door) -> None:
    status, found, _ = await door.ask("/deployments/chat/status", host="evil.example")
    assert (status, found["code"]) == (403, "foreign_host")


async def test_a_stream_is_raw_text_in_chunks(door: Door) -> None:
    body = {"prompt": "hello", "session_id": "s"}
    async with door.session.post("/deployments/chat/generate_stream", json=body) as response:
        assert response.status == 200 and response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.headers["x-gradwire-session-id"] == "s"
        parts = [part async for part, _ in response.content.iter_chunks() if part]
    assert len(parts) == 5
    stored = (await door.ask("/deployments/chat/sessions/s"))[1]["messages"]
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert b"".join(parts).decode() == stored[1]["content"]


async def test_a_stream_that_breaks_says_so_in_a_chunk_of_its_own(door: Door) -> None:
    sampler = door.served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(3)
    body = {"prompt": "hello", "session_id": "s"}
    async with door.session.post("/deployments/chat/generate_stream", json=body) as response:
        parts = [(await response.content.readchunk())[0] for _ in range(3)]
        sampler.generate_error = Unavailable("ENGINE_DEAD", "the engine died")
        sampler.token_gate.release()
        parts += [part async for part, _ in response.content.iter_chunks() if part]
    assert parts == [b"o", b"l", b"l", b"\n[ERROR: engine_dead: the engine died]"]
    sampler.generate_error = sampler.token_gate = None
    stored = (await door.ask("/deployments/chat/sessions/s"))[1]["messages"]
    assert stored[1]["content"] == "oll"  # what was streamed is kept


async def test_an_error_before_the_first_token_is_a_status(door: Door) -> None:
    door.served.engines.samplers[0].generate_error = Unavailable("ENGINE_DEAD", "the engine died")
    for path, body in (("generate", {"prompts": ["ab"]}), ("generate_stream", {"prompt": "x" * 70_000})):
        status, found, _ = await door.ask(f"/deployments/chat/{path}", body)
        assert (status, found["code"]) in ((503, "engine_dead"), (400, "prompt_too_long"))


async def test_a_caller_who_leaves_frees_the_slot_and_the_turn_is_kept(door: Door) -> None:
    sampler = door.served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(2)
    body = {"prompt": "hello", "session_id": "s"}
    response = await door.session.post("/deployments/chat/generate_stream", json=body)
    assert await response.content.readexactly(2) == b"ol" and sampler.open
    response.close()
    await until(lambda: not sampler.open)
    sampler.token_gate = None

    async def kept() -> bool:
        _, found, _ = await door.ask("/deployments/chat/sessions/s")
        return [message["content"] for message in found["messages"]] == ["hello", "ol"]

    await until(kept)
    status, _, _ = await door.ask("/deployments/chat/generate", {"prompts": ["b"], "session_id": "s"})
    assert status == 200  # the turn has ended


async def test_a_new_conversation_says_its_name(door: Door) -> None:
    _, found, headers = await door.ask("/deployments/chat/generate", {"prompts": ["ab", "cd"]})
    assert found.keys() == {"results", "batch_size", "inference_time_ms", "tokens_per_second", "success"}
    assert found["results"] == [{"prompt": "ab", "completion": "ba"}, {"prompt": "cd", "completion": "dc"}]
    assert headers["x-gradwire-finish-reason"] == "length,length"
    names = headers["x-gradwire-session-id"].split(",")
    _, first, _ = await door.ask(f"/deployments/chat/sessions/{names[0]}")
    assert first["messages"] == [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}]
    assert {row["session_id"] for row in (await door.ask("/deployments/chat/sessions"))[1]} == set(names)


async def test_sessions_and_messages_come_in_pages(door: Door) -> None:
    for index in range(5):
        await door.ask("/deployments/chat/generate", {"prompts": ["a"], "session_id": f"s{index}"})
    for text in ("b", "c"):
        await door.ask("/deployments/chat/generate", {"prompts": [text], "session_id": "s1"})
    listed, token_, pages = [], "", 0
    while pages == 0 or token_:
        _, rows, headers = await door.ask(f"/deployments/chat/sessions?page_size=2&page_token={token_}")
        listed += [row["session_id"] for row in rows]
        token_, pages = headers.get("x-gradwire-next-page-token", ""), pages + 1
    assert listed == ["s1", "s4", "s3", "s2", "s0"] and pages == 3
    _, first, headers = await door.ask("/deployments/chat/sessions/s1?page_size=4")
    rest = f"/deployments/chat/sessions/s1?page_size=4&page_token={headers['x-gradwire-next-page-token']}"
    _, second, headers = await door.ask(rest)
    assert len(first["messages"]) == 4 and "x-gradwire-next-page-token" not in headers
    _, whole, _ = await door.ask("/deployments/chat/sessions/s1")
    assert whole["messages"] == first["messages"] + second["messages"]
    for query in (
        "page_size=0",
        "page_size=1001",
        "page_size=x",
        "page_size=" + "0" * 8 + "1" * 5000,
        "page=2",
        "page_token=%00",
        "page_size",
    ):
        status, found, _ = await door.ask(f"/deployments/chat/sessions?{query}")
        assert status == 400, (query, found)


def claims(shape: str, data: bytes = b"\0" * 16) -> str:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return base64.b64encode(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data).decode()


BAD: dict[str, tuple[str, Any, int, str]] = {
    "terabytes": ("cartpole/get_action", {"obs": claims("(1099511627776, 4)")}, 400, "obs: claims shape"),
    "no object": ("cartpole/get_action", b"[1]", 400, "the body is a JSON list"),
    "no JSON": ("cartpole/get_action", b"\xff", 400, "the body is no JSON"),
    "nothing": ("cartpole/get_action", b"", 400, "the body is no JSON"),
    "no batch": ("cartpole/get_action", {"obs": claims("(4,)")}, 400, "obs: has shape [4]; it must be [4, 4]"),
    "two batches": ("cartpole/get_action", {"obs": ROW, "batch_size": 2}, 400, "batch_size: is 2"),
    "an odd mask": ("cartpole/get_action", {"obs": ROW, "action_mask": ROW}, 400, "action_mask: has shape [1, 4]"),
    "a state": ("cartpole/get_action", {"obs": ROW, "hidden_state": {"h": ROW}}, 400, "hidden_state: was given"),
    "a policy's text": ("cartpole/generate_stream", {"prompt": "a"}, 400, "this call is for a language model"),
    "a model's action": ("iris/get_action", {"obs": ROW}, 400, "this call is for a policy"),
    "nobody": ("nobody/get_action", {"obs": ROW}, 404, "no deployment 'nobody'"),
    "a billion tokens": ("chat/generate", {"prompts": ["a"], "params": {"max_new_tokens": 2**40}}, 400, "params"),
    "no tokens": ("chat/generate", {"prompts": ["a"], "params": {"max_new_tokens": 0}}, 400, "params.max_new_tokens"),
    "a long name": ("chat/generate", {"prompts": ["a"], "session_id": "s" * 300}, 400, "session_id"),
    "half a name": (
        "chat/generate",
        b'{"prompts": ["a"], "session_id": "\\ud800"}',
        400,
        "holds half a character: \\ud800",
    ),
    "half a key": ("chat/generate", b'{"prompts": ["a"], "params": {"\\ud800": 1}}', 400, "is not known"),
    "another encoding": ("chat/generate", json.dumps({"prompts": ["a"]}).encode("utf-16"), 400, "the body is no JSON"),
    "beyond floats": ("chat/generate", {"prompts": ["a"], "params": {"temperature": 10**400}}, 400, "params: "),
    "ten megabytes": ("chat/generate", {"prompts": ["a" * 10_000_000]}, 400, "prompts[0]"),
}


@pytest.mark.parametrize(("path", "body", "status", "said"), BAD.values(), ids=BAD)
async def test_bad_requests(door: Door, path: str, body: Any, status: int, said: str) -> None:
    found = await door.ask(f"/deployments/{path}", body)
    assert found[0] == status and said in found[1]["detail"], found
    assert (await door.ask("/deployments/chat/sessions"))[1] == []  # nothing is stored of it


async def test_paths_and_verbs(door: Door) -> None:
    status, found, headers = await door.ask("/deployments/chat/generate")
    assert (status, headers["allow"], found["code"]) == (405, "POST", "wrong_method")
    status, found, _ = await door.ask("/deployments/chat/nothing")
    assert status == 404 and "/get_action" in found["detail"]
    status, found, _ = await door.ask("/api/cli/v1/capabilities")
    assert status == 404  # the command asks for it, and goes on without
    status, found, _ = await door.ask("/status")
    assert status == 400 and "there are cartpole, chat, iris" in found["detail"]
    for name in ("cartpole", "iris"):
        await door.served.app.deployer.undeploy(name)
    assert (await door.ask("/status"))[1]["deployment_id"] == "chat"  # the only one needs no name


@pytest.mark.parametrize("field", ["experiment_name", "checkpoint", "memoryScope"])
async def test_what_no_deployment_is_made_of(door: Door, field: str) -> None:
    values: list[Any] = [[], {}, ["user"], 3, True, " ", "../../etc", "/etc/passwd", "a\0b", "x" * 5000]
    for value in values:
        body = {"experiment_name": "cartpole", field: value}
        status, found, _ = await door.ask("/api/cli/v1/inference/deploy", body)
        assert status == 400, (value, found)


async def test_a_deployment_that_failed_is_the_servers_fault(door: Door) -> None:
    broken = Deployment("broken", error="its bundle is gone")
    door.served.app.deployments.put(broken)
    for path, body in (("status", None), ("generate", {"prompts": ["a"]})):
        status, found, _ = await door.ask(f"/deployments/broken/{path}", body)
        assert (status, found["code"]) == (503, "deployment_failed") and "its bundle is gone" in found["detail"]
    _, listed, _ = await door.ask("/api/cli/v1/inference/deployments/list?name=broken")
    assert [row["status"] for row in listed["data"]] == ["failed"]


async def test_answers_do_not_wait_for_more(door: Door) -> None:
    """Nagle's algorithm and a client that acknowledges late would make 40 ms of each."""
    await door.ask("/deployments/chat/status")
    (connection,) = door.served.app._http._state.connections
    assert connection.transport is not None
    assert connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_behind_a_proxy_urls_are_its_own(door: Door) -> None:
    path = "/api/cli/v1/inference/deployments/one?name=chat"
    _, found, _ = await door.ask(path, x_forwarded_proto="https", host="localhost")
    assert found["data"]["url"] == "https://localhost/deployments/chat"


async def test_a_deployment_follows_a_training_job_by_its_number(door: Door) -> None:
    training = await door.served.training_job()
    deploy = {"experiment_name": str(training), "memoryScope": "organization"}
    status, found, _ = await door.ask("/api/cli/v1/inference/deploy", deploy)
    assert status == 200 and found["data"]["name"] == f"training-job-{training}"
    assert (found["data"]["memory_scope"], found["data"]["experiment_name"]) == ("organization", str(training))
    status, found, _ = await door.ask("/api/cli/v1/inference/deploy", {**deploy, "memoryScope": "user"})
    assert status == 400 and "memory_scope" in found["detail"]
    status, found, _ = await door.ask("/api/cli/v1/inference/deploy", {"experiment_name": "99"})
    assert status in (400, 404)
