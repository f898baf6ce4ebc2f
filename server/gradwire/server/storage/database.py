"""A database, SQLite or PostgreSQL: transactions that end as a whole, and its troubles as errors that callers see.

Knows: connections, the two dialects' ways, the clock that servers share. Does not know: any table but its own
schema's version (`migrations`).

A transaction runs to its end even when the call that began it is cancelled: nothing is ever half-written, and no
connection is left in a state that nobody knows.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gradwire.server.errors import GradwireError, InvalidArgument, Unavailable
from gradwire.server.packages import require
from gradwire.server.storage.migrations import migrate

DATABASE_LOG = __name__
log = logging.getLogger(DATABASE_LOG)
# Whatever the level: at DEBUG it writes each statement with its values, and those are conversations and digests.
logging.getLogger("aiosqlite").setLevel(logging.WARNING)
T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_WRITES = "gradwire_writes"  # option of a connection: its transaction takes SQLite's write lock at once
_RETRY = timedelta(seconds=1)
_BUSY = "DATABASE_BUSY"
_NO_NUL = 'encoding "UTF8": 0x00'  # PostgreSQL's text cannot hold it
_DISK_FULL = "53100"  # PostgreSQL's disk_full
_OUT_OF_REACH = "the database cannot be reached now"


class DatabaseSettingError(ValueError):
    """The database's address is wrong. Its text never holds the address, which may hold a password."""


def database_url(setting: str, data_dir: Path) -> URL:
    """`sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`; empty: gradwire.db in the data folder."""
    if not setting:
        return URL.create(_DRIVERS["sqlite"], database=str(data_dir.expanduser() / "gradwire.db"))
    try:
        url = make_url(setting)
    except (ArgumentError, ValueError):  # the second: of a port that is no number
        raise DatabaseSettingError("is no URL; write sqlite:///PATH or postgresql://USER@HOST/NAME") from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise DatabaseSettingError(f"{url.get_backend_name()} is not served; there are sqlite and postgresql")
    if driver.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise DatabaseSettingError("sqlite takes a file: sqlite:///PATH (three slashes, then the path)")
    if url.port is not None and url.port > 65535:
        raise DatabaseSettingError(f"{url.port} is no port; ports end at 65535")
    if "sslmode" in url.query:  # libpq's word; the driver here has another
        raise DatabaseSettingError("sslmode is called ssl here: postgresql://USER@HOST/NAME?ssl=require")
    return url.set(drivername=driver)


class Database:
    """One pool of connections. `open` before use, `close` at the end."""

    def __init__(self, url: URL, *, busy_timeout_s: float = 5.0) -> None:
        """`busy_timeout_s`: how long to wait for another process that writes, or for a free connection."""
        self._url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        # SQLite has one writer at a time. Those of this process queue here, in order, instead of polling its lock.
        self._writing = asyncio.Lock()
        self._busy_at = 0.0  # when a writer last gave up waiting for another process, by the loop's clock
        self._file: tuple[int, int] | None = None  # device and inode of SQLite's file
        self._under_way: set[asyncio.Task[Any]] = set()
        self._busy_timeout_s = busy_timeout_s
        self._engine: AsyncEngine | None = None

    def __repr__(self) -> str:
        return f"Database({self._url.get_backend_name()})"

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Raises Unavailable, and FailedPrecondition without the driver."""
        if self.is_sqlite:
            await asyncio.to_thread(self._make_file)
        else:
            require("asyncpg", "pip install -e '.[postgres]'", reason="POSTGRES_NOT_INSTALLED")
        self._engine = _engine(self._url, self._busy_timeout_s)
        try:
            await self.write(migrate)
        except ProgrammingError as error:  # no mistake of ours: a user that may make no tables, or tables of another's
            text = f"the database cannot be used: {cause_of(error)}"
            raise Unavailable("DATABASE_UNAVAILABLE", text) from error

    async def close(self) -> None:
        """Wait for what is under way, then disconnect."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))
        if self._engine is not None:
            await self._engine.dispose()

    async def read(self, work: Work[T]) -> T:
        """The result of `work` in a transaction that changes nothing. Raises Unavailable; of NUL, InvalidArgument."""
        return await self._finish(self._run(work, {}))

    async def write(self, work: Work[T]) -> T:
        """The result of `work` once what it changed is on disk. Raises Unavailable, and then nothing is changed."""
        return await self._finish(self._locked(work) if self.is_sqlite else self._run(work, {}))

    async def _finish(self, running: Any) -> T:
        task = asyncio.ensure_future(running)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; one that was cancelled does not want it

    async def _locked(self, work: Work[T]) -> T:
        came_at = asyncio.get_running_loop().time()
        async with self._writing:
            if came_at < self._busy_at:  # it waited behind one that gave up; each its own wait would add up
                raise _busy()
            try:
                return await self._run(work, {_WRITES: True})
            except Unavailable as error:
                if error.reason == _BUSY:
                    self._busy_at = asyncio.get_running_loop().time()
                raise

    async def _run(self, work: Work[T], options: dict[str, Any]) -> T:
        if self._engine is None:
            raise RuntimeError("the database is not open")
        self._require_file()
        try:
            async with self._engine.connect() as connection:
                if options:
                    await connection.execution_options(**options)
                async with connection.begin():
                    return await work(connection)
        except (IntegrityError, DataError, ProgrammingError):
            raise  # mistakes of ours
        except (DBAPIError, OSError, sa.exc.TimeoutError) as error:
            if _NO_NUL in str(error):
                raise InvalidArgument.at(
                    "", "a name in the request holds the character NUL, which no name has"
                ) from error
            raise _unavailable(error) from error
        except Exception as error:
            if type(error).__module__.startswith("asyncpg."):  # while it connects, SQLAlchemy does not wrap them
                raise _unavailable(error) from error
            raise

    def _make_file(self) -> None:
        """The file of SQLite, and its folder, for the owner alone: it holds hashes and conversations."""
        path = Path(self._url.database or "")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
            path.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
            self._file = _identity(path)
            _write_ahead(path, self._busy_timeout_s)
        except OSError as error:
            raise Unavailable("DATABASE_UNAVAILABLE", f"cannot open {path}: {error.strerror}") from error

    def _require_file(self) -> None:
        """Connections go on with a file that was deleted or replaced, and what they write is lost with it."""
        if self._file is None:
            return
        try:
            here = _identity(Path(self._url.database or ""))
        except OSError as error:
            raise _unavailable(error) from error
        if here != self._file:
            log.error("the database's file is another one than this server opened: start the server again")
            raise Unavailable("DATABASE_UNAVAILABLE", _OUT_OF_REACH, retry_after=_RETRY)


def _write_ahead(path: Path, patience_s: float) -> None:
    """With a write-ahead log readers and the writer do not wait for each other. The file remembers it.

    SQLite changes to it only when nobody else looks, and does not wait for that: of two servers that make one database
    at once, the second was told that it is locked. What stays wrong is told to whoever connects.
    """
    end = time.monotonic() + patience_s
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=patience_s)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.Error as error:
            if "locked" not in str(error) or time.monotonic() > end:
                return
            time.sleep(0.01)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _engine(url: URL, busy_timeout_s: float) -> AsyncEngine:
    if url.get_backend_name() == "sqlite":
        engine = create_async_engine(
            url,
            connect_args={"timeout": busy_timeout_s},
            pool_size=4,
            max_overflow=0,
            pool_timeout=busy_timeout_s,
            hide_parameters=True,  # conversations do not belong into logs
        )
        sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine
    return create_async_engine(
        url,
        connect_args={"timeout": busy_timeout_s, "command_timeout": 30},
        pool_size=8,
        max_overflow=8,
        pool_timeout=busy_timeout_s,
        pool_pre_ping=True,  # a server that was restarted costs nobody an error
        hide_parameters=True,
    )


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: _begin_sqlite does
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    # A transaction that first reads and then writes can fail at any moment; one that begins with the lock cannot.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def cause_of(error: Exception) -> str:
    """In one line, what the driver or the system said first; empty when neither has spoken. It holds no values."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, GradwireError):
        return ""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _unavailable(error: Exception) -> Unavailable:
    """What a caller may know. The log has the rest, and it has no values: they may be secret."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    log.error("the database failed: %s: %s", type(cause).__name__, cause)
    if _is_full(cause):
        # No time to try again: somebody has to make room.
        return Unavailable("DATABASE_FULL", "the disk of the database is full; nothing was written", retry_after=None)
    busy = "locked" in str(cause) or isinstance(error, sa.exc.TimeoutError)
    return _busy() if busy else Unavailable("DATABASE_UNAVAILABLE", _OUT_OF_REACH, retry_after=_RETRY)


def _is_full(cause: BaseException | None) -> bool:
    """Whether the driver says so: SQLite by its text, PostgreSQL by its code, the system by its number."""
    by_code = getattr(cause, "sqlstate", "") == _DISK_FULL or getattr(cause, "errno", None) == errno.ENOSPC
    return by_code or "database or disk is full" in str(cause)


def _busy() -> Unavailable:
    return Unavailable(_BUSY, "the database is busy; nothing was written", retry_after=_RETRY)
