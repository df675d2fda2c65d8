#!/usr/bin/env bash
# Everything about the Hopper product on one card, in ten minutes at most: its tests, its cuts, the whole cascade.
#
#     benchmarks/hopper.sh FOLDER
#
# Cuts that make the whole cascade faster are left in kernels/h200.json and in FOLDER; nothing else is changed.
set -u
cd "$(dirname "$0")/.."
out=${1:?a folder for the results}
mkdir -p "$out"
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python}
timeout 130 "$python" -m pytest -q -m gpu tests/model/test_hopper_gpu.py tests/model/test_kernels.py \
  -k "hopper or cut4 or cut5" >"$out/hopper-tests.log" 2>&1
tail -n 3 "$out/hopper-tests.log"
timeout 330 "$python" benchmarks/hopper.py --out "$out" --choice-seconds 250 --write 2>&1 | tee "$out/hopper.log"
timeout 130 "$python" benchmarks/cascade.py --preset wan5b --naive-cycles 1 --out "$out" >"$out/cascade.log" 2>&1
tail -n 3 "$out/cascade.log"
