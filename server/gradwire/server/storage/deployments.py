"""Names of deployments, and what is behind them, in the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from gradwire.server.domain.deployment_records import DeploymentRecord
from gradwire.server.domain.deployments import DeploymentKind, LanguageModel, PolicyBundle, Source
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.storage.database import Database
from gradwire.server.storage.dialects import insert_into
from gradwire.server.storage.schema import deployments


class DatabaseDeployments:
    """A `DeploymentStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Sequence[DeploymentRecord]:
        """Every name's record, by name."""

        async def work(connection: AsyncConnection) -> list[DeploymentRecord]:
            query = deployments.select().order_by(deployments.c.deployment_id)
            return [_record(row) for row in await connection.execute(query)]

        return await self._database.read(work)

    async def find(self, deployment_id: str) -> DeploymentRecord | None:
        """A name's record."""

        async def work(connection: AsyncConnection) -> DeploymentRecord | None:
            query = deployments.select().where(deployments.c.deployment_id == deployment_id)
            row = (await connection.execute(query)).first()
            return None if row is None else _record(row)

        return await self._database.read(work)

    async def put(self, record: DeploymentRecord) -> None:
        """Store a name's record, or replace it."""
        values = {
            "version": record.version,
            "tenant": record.tenant,
            "memory_scope": None if record.memory_scope is None else record.memory_scope.value,
            "kind": record.kind.value,
            "source": None if record.source is None else _encode(record.source),
            "deployed_at": record.deployed_at,
        }

        async def work(connection: AsyncConnection) -> None:
            new = insert_into(connection, deployments).values(deployment_id=record.deployment_id, **values)
            await connection.execute(new.on_conflict_do_update(index_elements=["deployment_id"], set_=values))

        await self._database.write(work)


def _record(row: Any) -> DeploymentRecord:
    return DeploymentRecord(
        deployment_id=row.deployment_id,
        version=row.version,
        tenant=row.tenant,
        memory_scope=None if row.memory_scope is None else MemoryScope(row.memory_scope),
        kind=DeploymentKind(row.kind),
        source=None if row.source is None else _decode(DeploymentKind(row.kind), bytes(row.source)),
        deployed_at=row.deployed_at,
    )


def _encode(source: Source) -> bytes:
    return json.dumps(asdict(source)).encode()


def _decode(kind: DeploymentKind, data: bytes) -> Source:
    fields = json.loads(data)
    if kind is not DeploymentKind.LLM:
        return PolicyBundle(**fields)
    # JSON has no tuples, and parameters have no lists.
    params = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.pop("params").items()}
    return LanguageModel(**fields, params=params)
