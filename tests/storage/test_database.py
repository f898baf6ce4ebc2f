"""The schema and its versions, transactions that end as a whole, and what callers are told of trouble."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from gradwire.server.errors import FailedPrecondition, Unavailable
from gradwire.server.storage import migrations, schema
from gradwire.server.storage.database import Database, DatabaseSettingError, database_url


async def test_migrations_make_what_the_schema_says(database: Database) -> None:
    def columns(connection: sa.Connection) -> dict[str, set[str]]:
        inspector = sa.inspect(connection)
        return {name: {c["name"] for c in inspector.get_columns(name)} for name in inspector.get_table_names()}

    found = await database.read(lambda connection: connection.run_sync(columns))
    expected = {table.name: {c.name for c in table.columns} for table in schema.metadata.tables.values()}
    assert found == expected | {"gradwire_schema": {"version"}}


async def test_opening_again_changes_nothing_and_two_at_once_do_no_harm(open_database: Callable[[], Database]) -> None:
    databases = [open_database() for _ in range(8)]
    await asyncio.gather(*(one.open() for one in databases))

    async def versions(connection: AsyncConnection) -> list[int]:
        return list((await connection.execute(sa.text("SELECT version FROM gradwire_schema"))).scalars())

    assert await databases[0].read(versions) == [*range(1, len(migrations.MIGRATIONS) + 1)]


async def test_a_newer_schema_is_refused(database: Database, open_database: Callable[[], Database]) -> None:
    async def from_the_future(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("INSERT INTO gradwire_schema VALUES (99)"))

    await database.write(from_the_future)
    with pytest.raises(FailedPrecondition, match="schema is version 99"):
        await open_database().open()


async def test_a_failed_migration_leaves_the_old_schema(
    database: Database, open_database: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*migrations.MIGRATIONS, ("CREATE TABLE half (a INTEGER)", "CREATE TABLE tokens (a INTEGER)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", broken)
    with pytest.raises((Unavailable, sa.exc.ProgrammingError)):  # SQLite calls a table that exists operational
        await open_database().open()
    monkeypatch.undo()
    tables = await database.read(lambda connection: connection.run_sync(lambda c: sa.inspect(c).get_table_names()))
    assert "half" not in tables


async def test_a_transaction_outlives_the_call_that_began_it(database: Database) -> None:
    entered = asyncio.Event()

    async def slow(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("CREATE TABLE slow (a INTEGER)"))
        entered.set()
        await asyncio.sleep(0.05)
        await connection.execute(sa.text("INSERT INTO slow VALUES (7)"))

    call = asyncio.create_task(database.write(slow))
    await entered.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait(database._under_way)

    async def look(connection: AsyncConnection) -> list[int]:
        return list((await connection.execute(sa.text("SELECT a FROM slow"))).scalars())

    assert await database.write(look) == [7]


async def test_an_error_in_a_transaction_undoes_it(database: Database) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("CREATE TABLE half (a INTEGER)"))
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await database.write(work)
    tables = await database.read(lambda connection: connection.run_sync(lambda c: sa.inspect(c).get_table_names()))
    assert "half" not in tables


async def test_a_locked_sqlite_is_busy_and_usable_afterwards(tmp_path: Path) -> None:
    database = Database(database_url("", tmp_path), busy_timeout_s=0.05)
    await database.open()
    with sqlite3.connect(tmp_path / "gradwire.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as caught:
            await database.write(lambda connection: connection.execute(sa.text("SELECT 1")))
        assert caught.value.reason == "DATABASE_BUSY" and caught.value.retry_after
        await database.read(lambda connection: connection.execute(sa.text("SELECT 1")))  # readers do not wait
        other.execute("COMMIT")
    await database.write(lambda connection: connection.execute(sa.text("SELECT 1")))
    await database.close()


async def test_a_full_disk_is_told_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = Database(database_url("", tmp_path))
    await database.open()

    async def fill(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("PRAGMA max_page_count = 1"))  # as many as there are
        await connection.execute(sa.text("CREATE TABLE big AS SELECT zeroblob(1000000)"))

    with pytest.raises(Unavailable, match="disk of the database is full") as caught:
        await database.write(fill)
    assert caught.value.reason == "DATABASE_FULL" and caught.value.retry_after is None
    assert "database or disk is full" in caplog.text
    await database.read(lambda connection: connection.execute(sa.text("SELECT 1")))
    await database.close()


async def test_writers_behind_one_that_gave_up_do_not_each_wait_again(tmp_path: Path) -> None:
    database = Database(database_url("", tmp_path), busy_timeout_s=0.3)
    await database.open()
    began = asyncio.get_running_loop().time()
    with sqlite3.connect(tmp_path / "gradwire.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        work = [database.write(lambda connection: connection.execute(sa.text("SELECT 1"))) for _ in range(40)]
        found = await asyncio.gather(*work, return_exceptions=True)
        assert {getattr(error, "reason", error) for error in found} == {"DATABASE_BUSY"}
        assert asyncio.get_running_loop().time() - began < 40 * 0.3 / 2
        other.execute("COMMIT")
    await database.write(lambda connection: connection.execute(sa.text("SELECT 1")))
    await database.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_sqlite_file_that_is_gone_takes_no_more_writes(tmp_path: Path, replaced: bool) -> None:
    database = Database(database_url("", tmp_path))
    await database.open()
    file, kept = tmp_path / "gradwire.db", tmp_path / "kept.db"
    file.rename(kept)
    if replaced:
        file.touch()
    for call in (database.read, database.write):
        with pytest.raises(Unavailable) as caught:
            await call(lambda connection: connection.execute(sa.text("SELECT 1")))
        assert caught.value.reason == "DATABASE_UNAVAILABLE"
    kept.replace(file)
    await database.write(lambda connection: connection.execute(sa.text("SELECT 1")))
    await database.close()


async def test_a_database_that_is_not_there_says_so_without_its_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = database_url(f"postgresql://me:geheim@/x?host={tmp_path}", tmp_path)
    with pytest.raises(Unavailable) as caught:
        await Database(url).open()
    assert caught.value.reason == "DATABASE_UNAVAILABLE"
    assert "geheim" not in caught.value.message + caplog.text + repr(Database(url))


async def test_sqlite_promises_what_it_stores(tmp_path: Path) -> None:
    database = Database(database_url("", tmp_path / "new" / "folder"))
    await database.open()
    file = tmp_path / "new" / "folder" / "gradwire.db"
    assert file.stat().st_mode & 0o077 == 0
    for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
        got = await database.read(lambda c, name=pragma: c.exec_driver_sql(f"PRAGMA {name}"))  # type: ignore[misc]
        assert got.scalar() == value
    await database.close()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("mysql://u:geheim@h/d", "mysql is not served"),
        ("u:geheim@h", "is no URL"),
        ("postgresql://u:geheim@h:abc/x", "is no URL"),
        ("postgresql://u:geheim@h:65536/x", "65536 is no port"),
        ("postgresql://u:geheim@h/x?sslmode=require", "ssl=require"),
        ("sqlite://", "sqlite takes a file"),
        ("sqlite:///:memory:", "sqlite takes a file"),
    ],
)
def test_addresses_that_do_not_work_are_refused(setting: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseSettingError, match=says) as caught:
        database_url(setting, tmp_path)
    assert "geheim" not in str(caught.value)


def test_addresses(tmp_path: Path) -> None:
    assert database_url("", tmp_path).database == f"{tmp_path}/gradwire.db"
    assert database_url("sqlite:////x/y.db", tmp_path).database == "/x/y.db"
    url: URL = database_url("postgres://u:p@h/d", tmp_path)
    assert (url.drivername, url.host, url.database) == ("postgresql+asyncpg", "h", "d")
