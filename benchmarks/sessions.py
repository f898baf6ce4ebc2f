"""Reading stored conversations: a store with 100,000 of one user beside a store with 100, taking turns.

python -m benchmarks.sessions [--many 100000] [--rounds 5] [--calls 100]

SQLite, in this process: no door and no network is in it. A page is 50 conversations; a conversation has 4 messages.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.report import Row, compared, parser_of, publish
from gradwire.server.domain.sessions import SessionReader, Shelf
from gradwire.server.storage.database import Database, database_url
from gradwire.server.storage.schema import messages, sessions
from gradwire.server.storage.sessions import DatabaseSessions

SHELF = Shelf("chat", "local", "user:local")
FEW, PAGE, MESSAGES, CHUNK = 100, 50, 4, 5000
TEXT = b"a sentence or two, of the length that messages in a chat have, more or less. " * 2


def session_id(number: int) -> str:
    """Names that are in no order."""
    return f"{number * 2654435761 % 2**32:08x}-{number}"


async def fill(database: Database, count: int) -> None:
    """So many conversations, straight into the tables."""
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))

        async def work(connection: AsyncConnection, numbers: range = numbers) -> None:
            await connection.execute(sessions.insert(), [_session(number) for number in numbers])
            await connection.execute(
                messages.insert(), [_message(n, place) for n in numbers for place in range(MESSAGES)]
            )

        await database.write(work)


def _session(number: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "deployment_id": SHELF.deployment_id,
        "tenant": SHELF.tenant,
        "user_name": SHELF.user,
        "session_id": session_id(number),
        "created_at": number,
        "updated_at": number * 7919 % 1_000_003,  # they were not written to in the order in which they began
        "num_messages": MESSAGES,
    }


def _message(number: int, place: int) -> dict[str, Any]:
    role = "assistant" if place % 2 else "user"
    return {
        "session": number + 1,
        "position": place,
        "role": role,
        "content": TEXT,
        "created_at": number,
        "incomplete": False,
    }


async def p50_ms(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    """Median of the calls, in milliseconds."""
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


async def measure(arguments: argparse.Namespace, folder: Path) -> list[Row]:
    """A row for a page of the list, one for a conversation."""
    readers: dict[int, SessionReader] = {}
    databases = []
    for count in (arguments.many, FEW):
        database = Database(database_url("", folder / str(count)))
        await database.open()
        await fill(database, count)
        readers[count] = SessionReader(DatabaseSessions(database))
        databases.append(database)
    picked = random.Random(0)

    async def listed(count: int) -> None:
        page = await readers[count].list(SHELF, PAGE)
        assert len(page.sessions) == PAGE

    async def got(count: int) -> None:
        page = await readers[count].get(SHELF, session_id(picked.randrange(count)))
        assert len(page.messages) == MESSAGES

    rows = []
    for what, call in ((f"list, a page of {PAGE}", listed), ("get, 4 messages", got)):
        taken: dict[int, list[float]] = {count: [] for count in readers}
        for each in range(arguments.rounds + 1):
            for count, samples in taken.items():
                seconds = await p50_ms(lambda call=call, count=count: call(count), arguments.calls)  # type: ignore[misc]
                if each:  # the first warms up
                    samples.append(seconds)
        title = f"sessions, {what}, of {arguments.many:,}, p50"
        many, few = taken.values()
        rows.append(compared(title, many, few, "ms", more_is_better=False, required=0.5, reference_name=f"of {FEW}"))
    for database in databases:
        await database.close()
    return rows


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--many", type=int, default=100_000, help="conversations of the large store (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--calls", type=int, default=100, help="of a round (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gradwire-bench-") as folder:
        rows = asyncio.run(measure(arguments, Path(folder)))
    publish(rows, arguments.json)


if __name__ == "__main__":
    main()
