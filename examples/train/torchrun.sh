#!/usr/bin/env bash
# Stage 1 on all GPUs of one machine, weights sharded over them (FSDP2). Run it again with --resume to go on,
# on any number of GPUs that divides batch / micro.
#
#     SAMPLES=samples/train WEIGHTS=wan5b-start OUT=runs/stage1 examples/train/torchrun.sh [more flags]
set -euo pipefail
gpus=${GPUS:-$(nvidia-smi --list-gpus | wc -l)}
exec torchrun --standalone --nproc-per-node "$gpus" -m hostbot train policy --stage 1 --preset wan5b \
  --mode "${MODE:-fsdp}" --samples "$SAMPLES" --from "$WEIGHTS" --out "$OUT" "$@"
