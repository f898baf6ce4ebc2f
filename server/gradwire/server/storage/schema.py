"""The tables as they are today, for queries; `migrations` makes them, and a test compares the two.

Times are Unix microseconds.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("token_id", sa.String, primary_key=True),
    sa.Column("digest", sa.LargeBinary),  # SHA-256 of the whole secret
    sa.Column("description", sa.String),
    sa.Column("kind", sa.String),
    sa.Column("tenant", sa.String),
    sa.Column("user_name", sa.String),
    sa.Column("scopes", sa.String),  # comma-separated names, sorted
    sa.Column("created_at", sa.BigInteger),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
)

sessions = sa.Table(
    "chat_sessions",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("deployment_id", sa.String),
    sa.Column("tenant", sa.String),
    sa.Column("user_name", sa.String),  # empty: all users of the tenant share it
    sa.Column("session_id", sa.String),
    sa.Column("created_at", sa.BigInteger),
    sa.Column("updated_at", sa.BigInteger),
    sa.Column("num_messages", sa.Integer),
    # The turn that is under way, and when it counts as lost. Null: none is.
    sa.Column("turn_id", sa.String),
    sa.Column("turn_expires_at", sa.BigInteger),
)

messages = sa.Table(
    "chat_messages",
    metadata,
    sa.Column("session", sa.BigInteger, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("role", sa.String),
    # UTF-8, not text: a model may sample U+0000, which PostgreSQL's texts cannot hold.
    sa.Column("content", sa.LargeBinary),
    sa.Column("created_at", sa.BigInteger),
    sa.Column("incomplete", sa.Boolean),
)

deployments = sa.Table(
    "deployments",
    metadata,
    sa.Column("deployment_id", sa.String, primary_key=True),
    sa.Column("version", sa.BigInteger),
    sa.Column("tenant", sa.String),  # of who deployed it
    sa.Column("memory_scope", sa.String),  # null: no language model was deployed under the name yet
    sa.Column("kind", sa.String),
    sa.Column("source", sa.LargeBinary),  # JSON. Null: nothing is deployed, the name alone is remembered
    sa.Column("deployed_at", sa.BigInteger),
)
