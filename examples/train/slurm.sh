#!/usr/bin/env bash
# Stage 1 on eight machines of eight GPUs: replicated over machines, sharded inside them (HSDP).
#
#     sbatch --export=ALL,SAMPLES=/shared/samples/train,WEIGHTS=/shared/wan5b-start,OUT=/shared/runs/stage1 \
#         examples/train/slurm.sh
#
# Samples, weights and OUT lie on a file system that all machines see. Ten minutes before the time limit SLURM sends
# SIGTERM: every rank ends its step together, a checkpoint is written, and the job puts itself back in the queue.
#SBATCH --job-name=hostbot-stage1
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
resume=()
if compgen -G "$OUT/checkpoints/step-*/state.json" >/dev/null; then resume=(--resume); fi
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  --rdzv-id "$SLURM_JOB_ID" -m hostbot train policy --stage 1 --preset wan5b --mode hsdp \
  --samples "$SAMPLES" --from "$WEIGHTS" --out "$OUT" "${resume[@]}" &
job=$!
stopped=0
trap 'stopped=1; kill -TERM "$job"' TERM
wait "$job" || true
if [ "$stopped" = 1 ]; then wait "$job" || true; scontrol requeue "$SLURM_JOB_ID"; fi
