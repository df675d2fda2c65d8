#!/usr/bin/env bash
# Make the virtual environment that everything runs in. Idempotent; a fraction of a second when nothing changed.
# usage: scripts/setup.sh [VENV]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
stamp=$venv/.hostbot-setup

inputs() { cat pyproject.toml packages/hostbot-client/pyproject.toml requirements/lock.txt scripts/setup.sh scripts/gl.sh; pwd; }
wanted=$(inputs | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x "$venv/bin/hostbot" ]; then
  exit 0
fi

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.12 python3.13 python3.11 python; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "hostbot needs Python 3.11 to 3.13 with venv. On Debian or Ubuntu: sudo apt-get install python3 python3-venv" >&2
  echo "or point PYTHON at one: make setup PYTHON=/path/to/python3.11" >&2
  return 1
}

python=$(find_python)
echo "setting up $venv with $("$python" --version) (once; a few minutes with a slow network)"
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
  if [ -d "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ]; then
    echo "$venv is there but is no virtual environment; move it away or name another" >&2
    exit 1
  fi
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
rm -f "$stamp"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/lock.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  -e packages/hostbot-client -e .
scripts/gl.sh "$venv"
echo "$wanted" > "$stamp"
