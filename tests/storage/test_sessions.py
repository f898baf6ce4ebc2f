"""Conversations: order, pages, whose they are, and turns that neither overlap nor are lost. On both databases."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gradwire.server.domain import turns as turns_module
from gradwire.server.domain.caller import Caller
from gradwire.server.domain.cursors import Cursor, encode_cursor
from gradwire.server.domain.sessions import MemoryScope, SessionReader, Shelf, check_session_id, shelf_of
from gradwire.server.domain.turns import Turns
from gradwire.server.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from gradwire.server.storage.database import Database, database_url
from gradwire.server.storage.sessions import DatabaseSessions

ALICE = Shelf("d", "acme", "user:alice")
BOB = Shelf("d", "acme", "user:bob")


@pytest.fixture
def store(database: Database) -> DatabaseSessions:
    return DatabaseSessions(database)


@pytest.fixture
def turns(store: DatabaseSessions) -> Turns:
    return Turns(store)


@pytest.fixture
def reader(store: DatabaseSessions) -> SessionReader:
    return SessionReader(store)


async def say(turns: Turns, session_id: str | None, content: str, reply: str, shelf: Shelf = ALICE) -> str:
    async with turns.turn(shelf, session_id, content) as turn:
        turn.extend(reply)
        await turn.complete()
    return turn.session_id


async def said(reader: SessionReader, session_id: str, shelf: Shelf = ALICE) -> list[tuple[str, str, bool]]:
    page = await reader.get(shelf, session_id)
    return [(message.role, message.content, message.incomplete) for message in page.messages]


async def test_turns_are_remembered_in_order(turns: Turns, reader: SessionReader) -> None:
    session_id = await say(turns, None, "one", "1\0")
    async with turns.turn(ALICE, session_id, "two \U0001f600") as turn:
        assert [message.content for message in turn.history] == ["one", "1\0", "two \U0001f600"]
        assert turn.num_older == 0
        turn.extend("2")
        turn.extend("2")
        await turn.complete()
    page = await reader.get(ALICE, session_id)
    assert [(m.role, m.content) for m in page.messages] == [
        ("user", "one"), ("assistant", "1\0"), ("user", "two \U0001f600"), ("assistant", "22"),
    ]  # fmt: skip
    assert page.session.num_messages == 4
    assert page.session.created_at <= page.messages[0].created_at <= page.session.updated_at
    assert [m.created_at for m in page.messages] == sorted(m.created_at for m in page.messages)


async def test_the_message_is_stored_before_the_reply_begins(turns: Turns, reader: SessionReader) -> None:
    async with turns.turn(ALICE, "s", "hello") as turn:
        assert await said(reader, "s") == [("user", "hello", False)]
        await turn.complete()


async def test_a_reply_that_breaks_off_keeps_what_was_sampled(turns: Turns, reader: SessionReader) -> None:
    async def break_off() -> None:
        async with turns.turn(ALICE, "s", "hello") as turn:
            turn.extend("so f")
            turn.extend("ar")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        await break_off()
    assert await said(reader, "s") == [("user", "hello", False), ("assistant", "so far", True)]
    await say(turns, "s", "again", "well")
    assert (await said(reader, "s"))[2:] == [("user", "again", False), ("assistant", "well", False)]


async def test_a_turn_that_is_withdrawn_never_was(turns: Turns, reader: SessionReader) -> None:
    async with turns.turn(ALICE, "s", "refused") as turn:
        await turn.withdraw()
        await turn.withdraw()
    assert (await reader.list(ALICE)).sessions == []
    await say(turns, "s", "one", "1")
    async with turns.turn(ALICE, "s", "refused") as turn:
        await turn._save(incomplete=True, renew_s=30.0)  # as a turn that waited long has done
        await turn.withdraw()
    assert await said(reader, "s") == [("user", "one", False), ("assistant", "1", False)]
    await say(turns, "s", "two", "2")
    assert [content for _, content, _ in await said(reader, "s")] == ["one", "1", "two", "2"]
    assert (await reader.get(ALICE, "s")).session.num_messages == 4
    async with turns.turn(ALICE, "s", "late") as turn:
        await reader.delete(ALICE, "s")
        await say(turns, "other", "x", "y")
        await turn.withdraw()
    assert [session.session_id for session in (await reader.list(ALICE)).sessions] == ["other"]


async def test_a_cancelled_call_keeps_what_was_sampled(turns: Turns, reader: SessionReader) -> None:
    reached = asyncio.Event()

    async def call() -> None:
        async with turns.turn(ALICE, "s", "hello") as turn:
            turn.extend("so far")
            reached.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(call())
    await reached.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await said(reader, "s") == [("user", "hello", False), ("assistant", "so far", True)]


async def test_a_call_that_is_cancelled_anywhere_leaves_the_session_free(turns: Turns, reader: SessionReader) -> None:
    chance = random.Random(7)
    completed = 0
    for _ in range(40):
        task = asyncio.create_task(say(turns, "s", "q", "a"))
        await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
        await asyncio.wait({task})
        completed += not task.cancelled()
    await asyncio.wait_for(say(turns, "s", "last", "word"), 5)  # far less than a lease
    messages = await said(reader, "s")
    assert messages[-2:] == [("user", "last", False), ("assistant", "word", False)]
    assert sum(content == "a" and not incomplete for _, content, incomplete in messages) >= completed
    assert [role for role, _, _ in messages] == ["user", "assistant"] * (len(messages) // 2)


async def test_a_reply_is_saved_on_its_way(
    turns: Turns, reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "SAVE_EVERY_S", 0.02)
    async with turns.turn(ALICE, "s", "hello") as turn:
        turn.extend("on its way")
        for _ in range(500):
            if len(await said(reader, "s")) == 2:
                break
            await asyncio.sleep(0.01)
        assert (await said(reader, "s"))[1] == ("assistant", "on its way", True)
        await turn.complete()
    assert (await said(reader, "s"))[1] == ("assistant", "on its way", False)


async def test_writers_on_two_servers_are_ordered(
    database: Database, open_database: Callable[[], Database], reader: SessionReader
) -> None:
    other = open_database()
    await other.open()
    servers = [Turns(DatabaseSessions(one)) for one in (database, other)]
    under_way = 0

    async def call(number: int) -> None:
        nonlocal under_way
        async with servers[number % 2].turn(ALICE, "s", f"q{number}") as turn:
            assert turn.history[-1].content == f"q{number}"
            assert under_way == 0
            under_way += 1
            turn.extend(f"a{number}")
            await asyncio.sleep(0.002)
            under_way -= 1
            await turn.complete()

    await asyncio.gather(*(call(number) for number in range(16)))
    messages = await said(reader, "s")
    assert len(messages) == 32
    for question, answer in zip(messages[::2], messages[1::2], strict=True):
        assert answer == ("assistant", "a" + question[1][1:], False)


async def test_waiting_for_a_turn_has_an_end(turns: Turns, store: DatabaseSessions, reader: SessionReader) -> None:
    async with turns.turn(ALICE, "s", "first") as turn:
        for waiting in (turns, Turns(store)):  # in the same process, and as another server
            with pytest.raises(Unavailable) as caught:
                async with waiting.turn(ALICE, "s", "second", wait_s=0.05):
                    pass
            assert caught.value.reason == "SESSION_BUSY"
        await say(turns, "other", "q", "a")  # other conversations go on
        await turn.complete()
    assert len(await said(reader, "s")) == 2  # the refused messages are not in it


async def test_the_lease_of_a_server_that_died_lapses_and_it_cannot_write_any_more(
    store: DatabaseSessions, reader: SessionReader
) -> None:
    dead, alive = Turns(store, lease_s=0.15), Turns(store)
    turn = await dead._begin(ALICE, "s", "lost", asyncio.get_running_loop().time() + 9)
    turn.extend("late")
    await say(alive, "s", "next", "reply")
    with pytest.raises(Aborted) as caught:
        await turn.complete()
    assert caught.value.reason == "SESSION_LOST"
    assert [content for _, content, _ in await said(reader, "s")] == ["lost", "next", "reply"]


async def test_a_long_turn_keeps_its_lease(store: DatabaseSessions) -> None:
    long, other = Turns(store, lease_s=0.3), Turns(store)
    async with long.turn(ALICE, "s", "q") as turn:
        with pytest.raises(Unavailable):
            async with other.turn(ALICE, "s", "x", wait_s=0.9):
                pass
        await turn.complete()


async def test_deleting_wins_over_a_turn(turns: Turns, reader: SessionReader) -> None:
    async with turns.turn(ALICE, "s", "hello") as turn:
        assert await reader.delete(ALICE, "s")
        turn.extend("reply")
        with pytest.raises(Aborted):
            await turn.complete()
    assert not await reader.delete(ALICE, "s")
    with pytest.raises(NotFound):
        await reader.get(ALICE, "s")


async def test_another_users_session_is_as_one_that_never_was(turns: Turns, reader: SessionReader) -> None:
    await say(turns, "s", "secret", "answer")
    others = (BOB, Shelf("other", "acme", ALICE.user), Shelf("d", "evil", ALICE.user), Shelf("d", "acme", ""))
    for shelf in others:
        with pytest.raises(NotFound) as theirs:
            await reader.get(shelf, "s")
        with pytest.raises(NotFound) as missing:
            await reader.get(shelf, "t")
        assert theirs.value.message.replace("'s'", "'t'") == missing.value.message
        assert not await reader.delete(shelf, "s")
        assert (await reader.list(shelf)).sessions == []
    await say(turns, "s", "mine", "own", BOB)  # the same id is free for others
    assert (await said(reader, "s"))[0] == ("user", "secret", False)
    assert (await said(reader, "s", BOB))[0] == ("user", "mine", False)


def test_shelves() -> None:
    alice = Caller("acme", "t1", frozenset(), user="user:alice")
    assert shelf_of("d", MemoryScope.USER, alice) == ALICE
    assert shelf_of("d", MemoryScope.ORGANIZATION, alice) == Shelf("d", "acme", "")
    with pytest.raises(FailedPrecondition, match="keeps no conversations"):
        shelf_of("d", MemoryScope.NONE, alice)


async def listed(reader: SessionReader, size: int, between: Callable[[int], object] = lambda page: None) -> list[str]:
    found: list[str] = []
    token, number = "", 0
    while True:
        page = await reader.list(ALICE, size, token)
        assert len(page.sessions) <= size
        found += [session.session_id for session in page.sessions]
        token = page.next_page_token
        if not token:
            return found
        outcome = between(number)
        if asyncio.iscoroutine(outcome):
            await outcome
        number += 1


async def test_pages_show_the_newest_first_and_each_once(turns: Turns, reader: SessionReader) -> None:
    for number in range(7):
        await say(turns, f"s{number}", "q", "a")
    await say(turns, "s2", "again", "a")
    newest_first = ["s2", "s6", "s5", "s4", "s3", "s1", "s0"]
    for size in (1, 2, 7, 50):
        assert await listed(reader, size) == newest_first

    async def meanwhile(page: int) -> None:
        await say(turns, f"new{page}", "q", "a")
        if page == 1:
            await reader.delete(ALICE, "s4")  # shown already: the cursor may name a row that is gone
            await say(turns, "s0", "q", "a")  # not shown yet: it moves to the front

    assert await listed(reader, 2, meanwhile) == ["s2", "s6", "s5", "s4", "s3", "s1"]


async def test_sessions_of_one_moment_are_listed_each_once(
    turns: Turns, reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def frozen(connection: object) -> int:
        return 1_700_000_000_000_000

    monkeypatch.setattr("gradwire.server.storage.sessions.now", frozen)
    for number in range(5):
        await say(turns, f"s{number}", "q", "a")
    assert await listed(reader, 2) == ["s4", "s3", "s2", "s1", "s0"]


async def test_messages_come_in_pages_that_fit(
    turns: Turns, reader: SessionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await say(turns, "s", f"q{number}", "a" * 10)
    monkeypatch.setattr(SessionReader, "MAX_PAGE_BYTES", 15)
    for size in (1, 4, 100):
        token, pages = "", []
        while True:
            page = await reader.get(ALICE, "s", size, token)
            pages.append([message.content for message in page.messages])
            token = page.next_page_token
            if not token:
                break
        assert [content for part in pages for content in part] == ["q0", "a" * 10, "q1", "a" * 10, "q2", "a" * 10]
        assert all(len(part) <= size and (len(part) == 1 or sum(map(len, part)) <= 15) for part in pages)


async def test_a_turn_reads_no_more_than_a_context_can_hold(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        await say(turns, "s", f"q{number}", "a" * 10)
    monkeypatch.setattr(turns_module, "MAX_HISTORY_BYTES", 16)
    async with turns.turn(ALICE, "s", "last") as turn:
        assert [message.content for message in turn.history] == ["q2", "a" * 10, "last"]
        assert turn.num_older == 4
        await turn.complete()


BAD_IDS = ("", "a/b", "..", "a..b", ".a", "a b", "a\n", "a\0", "é", "%2e", "a" * 201, "-x", "a?x")
BAD_CURSORS = (
    "x",
    "AAAA",
    "WzEsIDJd\n",
    "WzEsICJhIl0",
    "WzEsIC0xXQ",
    "W10",
    "é",
    "bnVsbA",
    "Wy0xLCAxXQ",
    "W3RydWUsIDFd",
)


async def test_ids_that_mean_something_elsewhere_are_refused(turns: Turns, reader: SessionReader) -> None:
    for bad in BAD_IDS:
        with pytest.raises(InvalidArgument) as caught:
            await say(turns, bad, "q", "a")
        assert [violation.field for violation in caught.value.violations] == ["session_id"]
        with pytest.raises(NotFound):
            await reader.get(ALICE, bad)
        assert not await reader.delete(ALICE, bad)


def test_ids_that_clients_make_are_fine() -> None:
    for good in ("0f8fad5b-d9cb-469f-a165-70867728950e", "a", "user@host:1", "a" * 200):
        assert check_session_id(good) == good


async def test_cursors_of_elsewhere_are_refused(reader: SessionReader) -> None:
    for token in BAD_CURSORS:
        for call in (reader.list(ALICE, 5, token), reader.get(ALICE, "s", 5, token)):
            with pytest.raises(InvalidArgument) as caught:
                await call
            assert [violation.field for violation in caught.value.violations] == ["page_token"]


async def test_the_time_of_a_list_does_not_grow_with_what_is_not_on_it(tmp_path: Path) -> None:
    database = Database(database_url("", tmp_path))
    await database.open()
    asked: list[tuple[str, Any]] = []
    assert database._engine is not None
    sa.event.listen(
        database._engine.sync_engine,
        "before_cursor_execute",
        lambda c, cursor, statement, parameters, *_: asked.append((statement, parameters)),
    )
    reader = SessionReader(DatabaseSessions(database))
    await reader.list(ALICE, 50, encode_cursor(Cursor(5, 5)))
    statement, parameters = asked[-1]

    def plan(connection: sa.Connection) -> str:
        return str(connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters).all())

    found = await database.read(lambda connection: connection.run_sync(plan))
    assert "USING INDEX chat_sessions_newest_first" in found
    assert "updated_at<?" in found and "TEMP B-TREE" not in found
    await database.close()
