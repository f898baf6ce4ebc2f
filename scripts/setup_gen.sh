#!/usr/bin/env bash
# Makes .venv-gen: the small environment that generates stubs and checks protos, without torch or any engine.
# A second run does nothing, unless scripts/requirements-gen.txt changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-gen
stamp=$venv/.ready

[[ $stamp -nt scripts/requirements-gen.txt ]] && exit 0

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -r scripts/requirements-gen.txt
touch "$stamp"
