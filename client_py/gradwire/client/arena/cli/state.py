"""What the command line remembers between two commands: the current deployment, and each one's current chat.

Knows: a file of names, readable by its owner alone. It never holds a credential.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def state_file() -> Path:
    """$XDG_STATE_HOME/gradwire/agents.json, by default in ~/.local/state."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "gradwire" / "agents.json"


class State:
    """Reads the file at each question and writes it whole at each change. A file that is damaged counts as empty."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or state_file()

    @property
    def current(self) -> tuple[str, str] | None:
        """Address and name of the current deployment; None when none was chosen."""
        found = self._read().get("current")
        if isinstance(found, list) and len(found) == 2 and all(isinstance(part, str) for part in found):
            return found[0], found[1]
        return None

    def choose(self, address: str, deployment: str) -> None:
        """Makes a deployment the current one."""
        self._write({**self._read(), "current": [address, deployment]})

    def session(self, endpoint: str) -> str | None:
        """The chat that prompts to a deployment continue."""
        found = self._sessions().get(endpoint)
        return found if isinstance(found, str) and found else None

    def resume(self, endpoint: str, session_id: str) -> None:
        """Makes a chat the one that prompts to a deployment continue."""
        self._write({**self._read(), "sessions": {**self._sessions(), endpoint: session_id}})

    def clear(self, endpoint: str) -> bool:
        """The next prompt begins a new chat; whether there was one to forget."""
        sessions = self._sessions()
        if endpoint not in sessions:
            return False
        del sessions[endpoint]
        self._write({**self._read(), "sessions": sessions})
        return True

    def _sessions(self) -> dict[str, Any]:
        found = self._read().get("sessions")
        return dict(found) if isinstance(found, dict) else {}

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, state: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # mkstemp makes it readable by its owner alone; the rename puts it there whole or not at all.
        number, name = tempfile.mkstemp(dir=self._path.parent, prefix=".agents-")
        with os.fdopen(number, "w") as file:
            json.dump(state, file, indent=1)
        Path(name).replace(self._path)
