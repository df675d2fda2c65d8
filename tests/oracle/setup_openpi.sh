#!/bin/sh
# Build .venv-openpi: the real openpi-client, kept apart because it needs numpy below 2.
# Run again at any time: it does nothing when all is there.
set -eu
cd "$(dirname "$0")/../.."
venv=${1:-.venv-openpi}
stamp="$venv/.complete-0.1.2"
[ -e "$stamp" ] && exit 0
"${PYTHON:-.venv/bin/python}" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check -q install -r requirements/openpi.txt
touch "$stamp"
