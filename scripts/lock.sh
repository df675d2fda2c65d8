#!/usr/bin/env bash
# Write requirements/lock.txt: the exact versions installed in a virtual environment, without local builds' suffixes.
# usage: scripts/lock.sh VENV
set -euo pipefail
cd "$(dirname "$0")/.."
{
  echo "# Exact versions that hostbot is tested with. Written by scripts/lock.sh; the ranges are in pyproject.toml."
  "$1/bin/python" -m pip freeze --exclude-editable --exclude hostbot --exclude hostbot-client |
    grep -v -E '^(-e|#|nvidia-|triton==|cuda-)' | sed -E 's/\+(cpu|cu[0-9]+)$//'
} > requirements/lock.txt.new
mv requirements/lock.txt.new requirements/lock.txt
