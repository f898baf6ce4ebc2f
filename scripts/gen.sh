#!/usr/bin/env bash
# Generates the Python stubs of every proto under protos/.
#
#   scripts/gen.sh [FOLDER]     default: gen, whose content is replaced
#
# A proto's path is its Python package's path, so no import in a stub is ever rewritten: FOLDER only has to be on
# sys.path. buf/validate comes along because the stubs import it, and a client has no protovalidate installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:-gen}
scripts/setup_gen.sh

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

mapfile -t protos < <(cd protos && find . -name '*.proto' -printf '%P\n' | LC_ALL=C sort)
# Only these need a *_pb2_grpc.py; the plugins would write an empty one for the others.
mapfile -t services < <(cd protos && grep -lE '^service ' -- "${protos[@]}" || true)

protoc=(.venv-gen/bin/python -m grpc_tools.protoc -Iprotos)
"${protoc[@]}" --python_out="$fresh" --pyi_out="$fresh" "${protos[@]}"
if ((${#services[@]})); then
  "${protoc[@]}" --plugin=protoc-gen-mypy_grpc=.venv-gen/bin/protoc-gen-mypy_grpc \
    --grpc_python_out="$fresh" --mypy_grpc_out=quiet:"$fresh" "${services[@]}"
fi

# Type checkers look at a package's annotations only where this marker lies. gradwire itself is a namespace and must
# stay without files of its own, so each leaf package gets one.
find "$fresh" -name '*_pb2.py' -printf '%h\0' | sort -zu | xargs -0 -I{} touch {}/py.typed

# New files first and stale ones after, so that a program that imports them meanwhile always finds a whole set.
mkdir -p "$out"
cp -R "$fresh"/. "$out"
(cd "$out" && find . -type f -print0) | while IFS= read -r -d '' file; do
  [[ -e $fresh/$file ]] || rm "$out/$file"
done
find "$out" -mindepth 1 -type d -empty -delete
