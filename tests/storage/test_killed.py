"""A server that is killed at any moment has lost nothing that it acknowledged, and what it left is whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from sqlalchemy.engine import URL

from gradwire.server.domain.sessions import SessionReader, Shelf
from gradwire.server.domain.turns import Turns
from gradwire.server.storage.database import Database
from gradwire.server.storage.sessions import DatabaseSessions

WRITER = """
import asyncio, sys
from sqlalchemy.engine import make_url
from gradwire.server.domain.sessions import Shelf
from gradwire.server.domain.turns import Turns
from gradwire.server.storage.database import Database
from gradwire.server.storage.sessions import DatabaseSessions

async def write(turns, session_id):
    number = 0
    while True:
        async with turns.turn(Shelf("d", "t", "u"), session_id, f"q{number}") as turn:
            turn.extend(f"a{number}")
            await turn.complete()
        print(session_id, number, flush=True)
        number += 1

async def main():
    database = Database(make_url(sys.argv[1]))
    await database.open()
    turns = Turns(DatabaseSessions(database), lease_s=0.5)
    await asyncio.gather(*(write(turns, f"s{i}") for i in range(3)))

asyncio.run(main())
"""


async def test_sigkill_loses_nothing_that_was_acknowledged(url: URL) -> None:
    lines = await asyncio.to_thread(_write_and_be_killed, url)
    acknowledged: dict[str, int] = {}
    for line in lines:
        session_id, number = line.split()
        acknowledged[session_id] = int(number)
    assert len(lines) > 10

    database = Database(url)
    await database.open()
    store = DatabaseSessions(database)
    reader, shelf = SessionReader(store), Shelf("d", "t", "u")
    for session_id, last in acknowledged.items():
        await _next_turn(store, shelf, session_id)
        messages = []
        token = ""
        while True:
            page = await reader.get(shelf, session_id, page_token=token)
            messages += [(m.role, m.content, m.incomplete) for m in page.messages]
            token = page.next_page_token
            if not token:
                break
        count = last + 1
        expected = [part for n in range(count) for part in (("user", f"q{n}", False), ("assistant", f"a{n}", False))]
        assert messages[: 2 * count] == expected
        begun = messages[2 * count : -2]  # of the turn that was under way, if it had been stored
        assert [role for role, _, _ in begun] in ([], ["user"], ["user", "assistant"])
        assert messages[-2:] == [("user", "after", False), ("assistant", "reply", False)]
        assert page.session.num_messages == len(messages)
    await database.close()


def _write_and_be_killed(url: URL) -> list[str]:
    command = [sys.executable, "-c", WRITER, url.render_as_string(hide_password=False)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(0.4)
        writer.kill()
        return [first, *writer.stdout]


async def _next_turn(store: DatabaseSessions, shelf: Shelf, session_id: str) -> None:
    async with Turns(store).turn(shelf, session_id, "after", wait_s=10) as turn:  # the lease of the dead one lapses
        turn.extend("reply")
        await turn.complete()
