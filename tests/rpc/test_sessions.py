"""SessionService over the wire: pages, what is missing, and a database that goes away."""

from __future__ import annotations

import asyncio

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gradwire.client import AsyncClient, NotFoundError
from gradwire.client.aio import sessions
from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.domain.deployments import Deployment
from gradwire.server.domain.sessions import MemoryScope, SessionReader, Shelf
from gradwire.server.errors import Unavailable
from gradwire.v1 import inference_pb2, session_pb2
from tests.rpc.support import Served, failure, until

SHELF = Shelf("agent", LOCAL_CALLER.tenant, LOCAL_CALLER.user)


async def say(served: Served, session_id: str, content: str, reply: str) -> None:
    async with served.app.turns.turn(SHELF, session_id, content) as turn:
        turn.extend(reply)
        await turn.complete()


async def test_the_client_reads_all_pages_and_deletes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.app.deployments.put(Deployment("agent"))
    for number in range(53):
        await say(served, f"s{number}", "q", "a")
    await say(served, "s7", "next", "reply")
    monkeypatch.setattr(SessionReader, "MAX_PAGE_BYTES", 6)  # so that one conversation is several pages, too
    monkeypatch.setattr(sessions, "_PAGE", 20)
    async with AsyncClient(served.app.grpc_address) as client:
        found = await client.sessions.list()
        assert [s.session_id for s in found] == ["s7", *(f"s{n}" for n in reversed(range(53)) if n != 7)]
        assert await client.sessions.list(limit=25) == found[:25] and await client.sessions.list(limit=1) == found[:1]
        conversation = await client.sessions.get("s7", deployment_id="agent")
        assert [(m.role, m.content, m.incomplete) for m in conversation.messages] == [
            ("user", "q", False), ("assistant", "a", False), ("user", "next", False), ("assistant", "reply", False),
        ]  # fmt: skip
        assert conversation.session == found[0] and conversation.session.num_messages == 4
        assert [await client.sessions.delete("s7") for _ in range(2)] == [True, False]
        with pytest.raises(NotFoundError):
            await client.sessions.get("s7")


async def test_what_is_not_there_is_said(served: Served) -> None:
    get = session_pb2.GetSessionRequest(session_id="s")
    failed = await failure(served.sessions.GetSession(get))
    assert (failed.code, failed.resource[0]) == (StatusCode.NOT_FOUND, "deployment")
    served.app.deployments.put(Deployment("agent"))
    failed = await failure(served.sessions.GetSession(get))
    assert (failed.code, failed.resource) == (StatusCode.NOT_FOUND, ("session", "s"))
    served.app.deployments.put(Deployment("forgetful", MemoryScope.NONE))
    failed = await failure(served.sessions.GetSession(get))
    assert (failed.code, failed.fields) == (StatusCode.INVALID_ARGUMENT, ["deployment_id"])
    failed = await failure(served.sessions.ListSessions(session_pb2.ListSessionsRequest(deployment_id="forgetful")))
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "NO_SESSIONS")


async def test_a_database_that_is_gone_is_unavailable_and_comes_back(served: Served) -> None:
    app = served.app
    app.deployments.put(Deployment("agent"))
    await say(served, "s", "q", "a")
    folder = app.settings.data_dir
    await app._database.close()  # so that it has to be opened anew
    for path in folder.glob("gradwire.db*"):
        path.rename(path.with_name("hidden-" + path.name))
    (folder / "gradwire.db").mkdir()
    failed = await failure(served.sessions.ListSessions(session_pb2.ListSessionsRequest()))
    assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
    assert failed.retry_after == 1 and str(folder) not in failed.text
    with pytest.raises(Unavailable):
        await say(served, "s", "again", "a")
    (folder / "gradwire.db").rmdir()
    for path in folder.glob("hidden-gradwire.db*"):
        path.rename(path.with_name(path.name.removeprefix("hidden-")))
    got = await served.sessions.GetSession(session_pb2.GetSessionRequest(session_id="s"))
    assert [message.content for message in got.messages] == ["q", "a"]


async def test_a_database_that_goes_away_in_mid_reply(served: Served) -> None:
    app, sampler = served.app, served.engines.samplers[0]
    app.turns._lease_s = 0.3  # so that the next turn need not wait long for the one that could not end
    calls = {
        served.inference.GenerateReply: inference_pb2.GenerateReplyRequest(prompts=["abc"], session_id="s"),
        served.inference.GenerateReplyStream: inference_pb2.GenerateReplyStreamRequest(prompt="abc", session_id="s"),
    }
    async with AsyncClient(app.grpc_address) as client:
        await client.deployments.deploy_llm("helper")
        file, away = app.settings.data_dir / "gradwire.db", app.settings.data_dir / "away.db"
        for call, request in calls.items():
            sampler.token_gate = asyncio.Semaphore(1)
            failing = asyncio.create_task(failure(call(request)))
            await until(lambda: len(sampler.open) == 1)  # the message is stored, and the reply has begun
            file.rename(away)
            for _ in range(9):
                sampler.token_gate.release()
            failed = await failing
            assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
            assert not sampler.open and str(file) not in failed.text
            away.rename(file)
        sampler.token_gate = None
        assert (await client.inference.generate("z", session_id="s", max_tokens=1)).replies[0].text == "z"
        found = await client.sessions.get("s")
    # What was asked is there; a reply that could not be stored is not there, or what had been saved of it is marked.
    said = [(m.role, m.content) for m in found.messages if not m.incomplete]
    assert said == [("user", "abc"), ("user", "abc"), ("user", "z"), ("assistant", "z")]
    assert len(found.messages) == found.session.num_messages


async def test_it_has_a_health_of_its_own(served: Served) -> None:
    request = health_pb2.HealthCheckRequest(service="gradwire.v1.SessionService")
    answer = await health_pb2_grpc.HealthStub(served.channel).Check(request)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
