"""Tokens that are made, used and ended while the server runs: on the wire, in the store, and on the command line."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode, aio

from gradwire.server.cli import main
from gradwire.server.domain import authentication, credentials
from gradwire.v1 import admin_pb2, job_pb2, sampling_pb2, session_pb2
from tests.rpc.support import Served, failure, serving, text_prompt
from tests.rpc.test_auth import SECRETS, bearer, token

GENERATE = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that wants tokens; its settings know an administrator."""
    async with serving(tmp_path, tokens=[token("admin")]) as running:
        yield running


async def create(served: Served, *, as_admin: str = SECRETS["admin"], **fields: object) -> tuple[str, str]:
    """The id and the secret of a new token, one for sampling by default."""
    defaults: dict[str, object] = {"tenant": "acme", "scopes": [admin_pb2.SCOPE_INFERENCE]}
    request = admin_pb2.CreateTokenRequest(**{**defaults, **fields})  # type: ignore[arg-type]
    created = await served.admin.CreateToken(request, metadata=bearer(as_admin))
    return created.token.token_id, created.secret


async def revoke(served: Served, token_id: str) -> None:
    await served.admin.RevokeToken(
        admin_pb2.RevokeTokenRequest(token_id=token_id), metadata=bearer(SECRETS["admin"])
    )  # fmt: skip


async def refusal(served: Served, metadata: aio.Metadata) -> str:
    failed = await failure(served.sampling.Generate(GENERATE, metadata=metadata))
    assert failed.code is StatusCode.UNAUTHENTICATED
    return failed.reason


async def test_a_made_token_opens_what_its_scopes_say_until_it_is_revoked(guarded: Served) -> None:
    token_id, secret = await create(guarded)
    await guarded.sampling.Generate(GENERATE, metadata=bearer(secret))
    failed = await failure(guarded.jobs.ListJobs(job_pb2.ListJobsRequest(), metadata=bearer(secret)))
    assert (failed.code, failed.reason) == (StatusCode.PERMISSION_DENIED, "MISSING_SCOPE")
    for _ in range(2):  # again is fine
        await revoke(guarded, token_id)
        assert await refusal(guarded, bearer(secret)) == "TOKEN_REVOKED"  # at once, for all that it was just used


async def test_wrong_secrets_are_refused_and_say_nothing_of_the_token(guarded: Served) -> None:
    token_id, secret = await create(guarded)
    _, other = await create(guarded)
    head, _, tail = secret.rpartition("_" + token_id + "_")
    wrong = {
        "another's random part": f"{head}_{token_id}_{other.rsplit(token_id, 1)[-1][-43:]}",
        "one character off": secret[:-1] + ("A" if secret[-1] != "A" else "B"),
        "the other kind": secret.replace("_pat_", "_org_"),
        "longer": secret + "A",
        "shorter": secret[:-1],
        "an id that is not there": f"gradwire_pat_{'0' * 16}_{tail}",
        "no secret of ours": "arena_pat_x_y",
    }
    await revoke(guarded, token_id)  # not even that is told to who does not hold it
    for what, presented in wrong.items():
        assert await refusal(guarded, bearer(presented)) == "TOKEN_UNKNOWN", what


async def test_digests_are_compared_in_constant_time(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    token_id, secret = await create(guarded)
    record = await guarded.app.tokens.find(token_id)
    assert record is not None
    compared: list[tuple[bytes, bytes]] = []

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(credentials, "hmac", type("hmac", (), {"compare_digest": staticmethod(watched)}))
    assert credentials.matches(record, secret) and not credentials.matches(record, secret + "x")
    assert [pair[0] for pair in compared] == [record.digest] * 2
    assert all(len(pair[1]) == 32 for pair in compared)


async def test_a_token_ends_with_its_lifetime(guarded: Served) -> None:
    lifetime = Duration()
    lifetime.FromTimedelta(timedelta(seconds=1.5))
    _, secret = await create(guarded, lifetime=lifetime)
    await guarded.sampling.Generate(GENERATE, metadata=bearer(secret))
    await asyncio.sleep(1.55)
    assert await refusal(guarded, bearer(secret)) == "TOKEN_EXPIRED"  # although it was remembered


async def test_a_change_behind_the_servers_back_is_seen_within_seconds(
    guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "CACHE_S", 0.2)
    token_id, secret = await create(guarded)
    await guarded.sampling.Generate(GENERATE, metadata=bearer(secret))
    assert await guarded.app.tokens.revoke(token_id, credentials.now())  # as another server, or --database, does
    await asyncio.sleep(0.25)
    assert await refusal(guarded, bearer(secret)) == "TOKEN_REVOKED"


async def test_an_organisations_token_and_an_external_user_belong_together(guarded: Served) -> None:
    _, org = await create(guarded, kind=admin_pb2.TOKEN_KIND_ORGANIZATION)
    _, profile = await create(guarded)

    def external(secret: str, user: str) -> aio.Metadata:
        return aio.Metadata(("authorization", f"Bearer {secret}"), ("x-external-user-id", user))

    await guarded.sampling.Generate(GENERATE, metadata=external(org, "u1"))
    assert await refusal(guarded, bearer(org)) == "EXTERNAL_USER_MISSING"
    assert await refusal(guarded, external(profile, "u1")) == "EXTERNAL_USER_NOT_ALLOWED"
    assert await refusal(guarded, external(SECRETS["admin"], "u1")) == "EXTERNAL_USER_NOT_ALLOWED"
    for bad in ("", "a b", "x" * 201):
        assert await refusal(guarded, external(org, bad)) == "EXTERNAL_USER_INVALID"


async def test_tokens_are_listed_in_pages_without_their_secrets(guarded: Served) -> None:
    made = [await create(guarded, tenant=tenant, description=f"d-{tenant}") for tenant in ("a", "b", "a")]
    request = admin_pb2.ListTokensRequest(page_size=2)
    admin = bearer(SECRETS["admin"])
    first = await guarded.admin.ListTokens(request, metadata=admin)
    await create(guarded)  # a newer one does not move the next page
    request.page_token = first.next_page_token
    second = await guarded.admin.ListTokens(request, metadata=admin)
    assert [t.token_id for t in (*first.tokens, *second.tokens)] == [token_id for token_id, _ in reversed(made)]
    assert not second.next_page_token
    for _, secret in made:
        assert secret not in str(first) + str(second)
    only = await guarded.admin.ListTokens(admin_pb2.ListTokensRequest(tenant="b"), metadata=admin)
    assert [(t.tenant, t.description, list(t.scopes)) for t in only.tokens] == [("b", "d-b", [1])]
    request.page_token = "x"
    assert (await failure(guarded.admin.ListTokens(request, metadata=admin))).fields == ["page_token"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a\0b"}, "tenant"),
        ({"description": "two\nlines"}, "description"),
        ({"scopes": []}, "scopes"),
        ({"kind": admin_pb2.TOKEN_KIND_ORGANIZATION, "user": "u"}, "user"),
        ({"lifetime": Duration(seconds=300_000_000_000)}, "lifetime"),
    ],
)
async def test_tokens_that_make_no_sense_are_refused(guarded: Served, fields: dict[str, object], path: str) -> None:
    defaults: dict[str, object] = {"tenant": "acme", "scopes": [admin_pb2.SCOPE_INFERENCE]}
    request = admin_pb2.CreateTokenRequest(**{**defaults, **fields})  # type: ignore[arg-type]
    failed = await failure(guarded.admin.CreateToken(request, metadata=bearer(SECRETS["admin"])))
    assert (failed.code, failed.fields) == (StatusCode.INVALID_ARGUMENT, [path])


async def test_a_token_that_is_not_there_cannot_be_revoked(guarded: Served) -> None:
    request = admin_pb2.RevokeTokenRequest(token_id="nosuch")
    failed = await failure(guarded.admin.RevokeToken(request, metadata=bearer(SECRETS["admin"])))
    assert (failed.code, failed.resource) == (StatusCode.NOT_FOUND, ("token", "nosuch"))


async def test_refusals_are_counted(guarded: Served) -> None:
    for _ in range(3):
        await refusal(guarded, bearer("wrong"))
    labels = {"reason": "TOKEN_UNKNOWN"}
    assert guarded.app._registry.get_sample_value("gradwire_auth_failures_total", labels) == 3


async def test_no_secret_is_logged_shown_or_stored(
    guarded: Served, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.DEBUG):
        token_id, secret = await create(guarded)
        _, org = await create(guarded, kind=admin_pb2.TOKEN_KIND_ORGANIZATION)
        await guarded.sampling.Generate(GENERATE, metadata=bearer(secret))
        texts = []
        for presented in (secret + "x", org):
            failed = await failure(guarded.sampling.Generate(GENERATE, metadata=bearer(presented)))
            texts += [failed.text, str(failed.details)]
        record = await guarded.app.tokens.find(token_id)
        await revoke(guarded, token_id)
    assert any(record.levelno == logging.DEBUG for record in caplog.records)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("gradwire.db*"))
    assert token_id.encode() in stored
    for hidden in (secret, org, secret[-43:], org[-43:]):
        assert hidden not in caplog.text + repr(record) + "".join(texts)
        assert hidden.encode() not in stored
    assert record is not None
    assert record.digest.hex() not in caplog.text and repr(record.digest)[2:-1] not in caplog.text + repr(record)


async def test_an_external_user_sees_only_its_own_conversations(guarded: Served) -> None:
    from gradwire.server.domain.deployments import Deployment
    from gradwire.server.domain.sessions import MemoryScope, Shelf

    app = guarded.app
    for name, scope in (("mine", MemoryScope.USER), ("ours", MemoryScope.ORGANIZATION)):
        app.deployments.put(Deployment(name, scope))
    _, org = await create(guarded, kind=admin_pb2.TOKEN_KIND_ORGANIZATION)
    _, alice = await create(guarded, user="alice")
    _, alice_later = await create(guarded, user="alice")
    _, nameless = await create(guarded)
    _, stranger = await create(guarded, tenant="other", user="alice")
    callers = {
        "external alice": aio.Metadata(("authorization", f"Bearer {org}"), ("x-external-user-id", "alice")),
        "external bob": aio.Metadata(("authorization", f"Bearer {org}"), ("x-external-user-id", "bob")),
        **{n: bearer(s) for n, s in zip(
            ("alice", "alice later", "nameless", "stranger"), (alice, alice_later, nameless, stranger), strict=True
        )},
    }  # fmt: skip
    shelves = (("mine", "external:alice"), ("mine", "user:alice"), ("ours", ""))
    for shelf in (Shelf(deployment, "acme", user) for deployment, user in shelves):
        async with app.turns.turn(shelf, f"of-{shelf.user.replace(':', '-') or 'all'}", "q") as turn:
            turn.extend("a")
            await turn.complete()

    async def seen(name: str, deployment: str) -> list[str]:
        request = session_pb2.ListSessionsRequest(deployment_id=deployment)
        return [s.session_id for s in (await guarded.sessions.ListSessions(request, metadata=callers[name])).sessions]

    assert {name: await seen(name, "mine") for name in callers} == {
        "external alice": ["of-external-alice"], "external bob": [], "alice": ["of-user-alice"],
        "alice later": ["of-user-alice"], "nameless": [], "stranger": [],
    }  # fmt: skip
    assert {name: await seen(name, "ours") for name in callers} == {
        name: [] if name == "stranger" else ["of-all"] for name in callers
    }


def test_the_command_line_on_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gradwire(*arguments: str, code: int = 0) -> str:
        assert main(["token", *arguments, "--database", str(tmp_path)]) == code
        out, err = capsys.readouterr()
        return err if code else out

    assert "there is no database" in gradwire("list", code=1)
    secret = gradwire("create", "--tenant", "acme", "--scope", "inference", "--user", "al", "--lifetime", "2d").strip()
    org = json.loads(gradwire("create", "--tenant", "b", "--scope", "admin", "--scope", "training", "--organization",
                              "--json"))  # fmt: skip
    assert secret.startswith("gradwire_pat_") and org["secret"].startswith("gradwire_org_")
    token_id = secret.split("_")[2]
    rows = json.loads(gradwire("list", "--json"))
    assert [(r["token_id"], r["kind"], r["tenant"], r["user"], r["scopes"]) for r in rows] == [
        (org["token_id"], "organization", "b", "", ["admin", "training"]),
        (token_id, "profile", "acme", "al", ["inference"]),
    ]
    gradwire("revoke", token_id)
    (row,) = json.loads(gradwire("list", "--tenant", "acme", "--json"))
    assert row["revoked_at"] and row["expires_at"]
    assert secret not in (shown := gradwire("list")) and token_id in shown
    assert "no token 'x'" in gradwire("revoke", "x", code=1)
    refused = json.loads(gradwire("revoke", "x", "--json", code=1))["error"]
    assert (refused["status"], refused["reason"]) == ("NOT_FOUND", "TOKEN_NOT_FOUND")
    assert "user" in gradwire("create", "--tenant", "b", "--scope", "admin", "--organization", "--user", "u", code=1)


def test_the_command_line_on_what_is_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gradwire.db").write_bytes(b"a text that is no database, and long enough to be one" * 100)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE tokens (id INTEGER)")
    cases = {
        str(tmp_path): "the database cannot be reached now: file is not a database",
        str(other): "the database cannot be reached now: table tokens already exists",
        "sqlite:////proc/none/x.db": "cannot open /proc/none/x.db: No such file or directory",
        "postgresql://u:hidden@127.0.0.1:1/x": "the database cannot be reached now: Connect",
    }
    for where, says in cases.items():
        assert main(["token", "list", "--database", where]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("gradwire token: ") and says in line and "hidden" not in line, where
    # As a process: what logs say there is seen, too.
    command = [sys.executable, "-m", "gradwire.server", "token", "list", "--json", "--database", where]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    error = json.loads(ended.stderr)["error"]
    assert (error["status"], error["reason"]) == ("UNAVAILABLE", "DATABASE_UNAVAILABLE") and says in error["message"]
    assert (ended.returncode, ended.stdout) == (1, "")


async def test_the_command_line_on_a_server(
    guarded: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADWIRE_ADDRESS", guarded.app.grpc_address)
    monkeypatch.setenv("GRADWIRE_TOKEN", SECRETS["admin"])
    assert await asyncio.to_thread(main, ["token", "create", "--tenant", "acme", "--scope", "inference"]) == 0
    secret = capsys.readouterr().out.strip()
    await guarded.sampling.Generate(GENERATE, metadata=bearer(secret))
    assert await asyncio.to_thread(main, ["token", "revoke", secret.split("_")[2]]) == 0
    assert await refusal(guarded, bearer(secret)) == "TOKEN_REVOKED"
    monkeypatch.setenv("GRADWIRE_TOKEN", secret)
    assert await asyncio.to_thread(main, ["token", "list"]) == 1
    assert "revoked" in capsys.readouterr().err
