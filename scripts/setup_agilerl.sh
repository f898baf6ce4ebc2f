#!/usr/bin/env bash
# Makes .venv-agilerl: AgileRL on top of .venv's packages, for the tests that convert its checkpoints, and its Arena
# client, for those that talk to the server with it.
#
# In .venv itself it would pin torch's and transformers' versions, and bring two gigabytes. Here are only the packages
# that importing its algorithms takes, without what they require; the rest is .venv's. A second run does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-agilerl
stamp=$venv/.ready
packages=(
  agilerl==2.58.0 agilerl-arena==1.29.0 tensordict==0.13.0 pyvers==0.2.3 pettingzoo==1.27.0 fastrand==3.1.0
  lazy-loader==0.6 wandb==0.31.0 platformdirs==4.14.8 xxhash==4.1.0
  python-keycloak==7.1.1 jwcrypto==1.6.1 deprecation==2.1.0 requests-toolbelt==1.0.0 aiofiles==25.1.0
)

below=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wanted="$below ${packages[*]}"
[[ -f $stamp && $(<"$stamp") == "$wanted" ]] && exit 0

rm -rf "$venv"
.venv/bin/python -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps "${packages[@]}"
echo "$below" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
"$venv/bin/python" -c 'import agilerl.algorithms, agilerl.arena.cli'
echo "$wanted" >"$stamp"
