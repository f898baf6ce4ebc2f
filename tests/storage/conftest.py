"""Each test of storage runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine

from gradwire.server.storage.database import Database, database_url
from tests.postgres import binaries, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that lasts for the run."""
    if binaries() is None:
        pytest.skip("no PostgreSQL on this machine: install the package postgresql")
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[URL]:
    """Of an empty database."""
    if request.param == "sqlite":
        yield database_url("", tmp_path)
        return
    found = database_url(request.getfixturevalue("postgres"), tmp_path)
    engine = create_async_engine(found)
    async with engine.begin() as connection:  # much quicker than a database of its own
        await connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        await connection.execute(sa.text("CREATE SCHEMA public"))
    await engine.dispose()
    yield found


@pytest.fixture
async def open_database(url: URL) -> AsyncIterator[Callable[[], Database]]:
    """Another server's view of the same database, each time it is called; still to be opened."""
    made: list[Database] = []

    def make() -> Database:
        made.append(Database(url))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
async def database(open_database: Callable[[], Database]) -> Database:
    """An open, empty database."""
    opened = open_database()
    await opened.open()
    return opened
