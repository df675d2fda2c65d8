"""The Hopper product alone and in a pass: right against float32, and how fast, for every way to cut it.

    python benchmarks/hopper.py --out FOLDER --write

Weights come from memory, not from a cache: each product cycles through more of them than any cache holds, in one graph.
Every cut runs in a process that may fail or hang without losing the others. The fastest that were right are then tried
in a cascade pass of eight layers, as ``kernel_choice.py`` does, and those that were faster there in the whole cascade
(``hopper_choice.py``). With ``--write`` and a cascade that was faster they become what ``kernels/h200.json`` holds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import measure
import torch
from hopper_cuts import SHAPES, Job, Triton, jobs
from hopper_summary import is_other, summarise, way_in_short

from hostbot.model.kernels import hopper
from hostbot.model.kernels.hopper import HopperTiling

CYCLED = 300e6
"""Bytes of weights that a timed graph reads before it comes back to the first."""


def compile_one(job: Job, folder: Path) -> str:
    """Machine code into a file; what the compiler said of registers, or of its failure."""
    assert isinstance(job.way, HopperTiling)
    program = hopper.source(job.way, job.rows, job.gelu, job.overlap, job.packed)
    try:
        code, log = hopper.compiled(program, ["--ptxas-options=-v"])
    except RuntimeError as error:
        return f"FAILED {error}"
    (folder / f"{job.code}.cubin").write_bytes(code)
    return " ".join(line.strip() for line in log.splitlines() if "registers" in line or "C7" in line)


def compile_all(tried: Sequence[Job], folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    once = {job.code: job for job in tried if isinstance(job.way, HopperTiling)}
    with multiprocessing.get_context("fork").Pool(min(16, os.cpu_count() or 1)) as pool:
        said = pool.starmap(compile_one, [(job, folder) for job in once.values()], chunksize=1)
    return dict(zip(once, said, strict=True))


class Bench:
    """What the products of a process share: weights, rows and what should come out."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kernels = folder, {}
        self.shape, self.weights, self.x, self.bias = (0, 0, 0), [], torch.empty(0), torch.empty(0)

    def take(self, job: Job) -> None:
        if self.shape == (job.rows, job.outputs, job.inputs):
            return
        if self.shape[1:] != (job.outputs, job.inputs):
            self.weights.clear()
            count = max(2, -(-int(CYCLED) // (2 * job.outputs * job.inputs))) if job.timed else 2
            self.weights = [
                torch.randn(job.outputs, job.inputs, device="cuda", dtype=torch.bfloat16) / job.inputs**0.5
                for _ in range(count)
            ]
        self.shape = (job.rows, job.outputs, job.inputs)
        self.x = torch.randn(job.rows, job.inputs, device="cuda", dtype=torch.bfloat16)
        self.bias = torch.randn(job.outputs, device="cuda", dtype=torch.bfloat16)

    def expected(self, job: Job, weight: torch.Tensor) -> torch.Tensor:
        y = self.x.float() @ weight.float().T
        return torch.nn.functional.gelu(y + self.bias.float(), approximate="tanh") if job.gelu else y

    def laid(self, job: Job) -> list[torch.Tensor]:
        """Weights as the job wants them."""
        if not job.packed:
            return self.weights
        assert isinstance(job.way, HopperTiling)
        tiles = (w.unflatten(0, (-1, job.way.outputs)).unflatten(2, (-1, 64)) for w in self.weights)
        return [tile.transpose(1, 2).contiguous().view(job.outputs, job.inputs) for tile in tiles]

    def run(self, job: Job, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if isinstance(job.way, int):
            if job.gelu:
                return torch.ops.aten._addmm_activation(self.bias, self.x, weight.T, use_gelu=True)
            if job.way == 1:
                return torch.mm(self.x, weight.T)
            x, w = (y.unflatten(1, (job.way, -1)).transpose(0, 1) for y in (self.x, weight))
            return torch.bmm(x, w.mT, out_dtype=torch.float32)
        bias = self.bias if job.gelu else None
        if isinstance(job.way, Triton):
            from hostbot.model.kernels.product import Tiling, tiled

            tiled(self.x, weight, Tiling(**dict(job.way.cut)), out, bias)
            return out
        kernel = self.kernels[job.code]
        hopper.launch_kernel(kernel, self.x, weight, job.way, out, bias, job.overlap, job.packed)
        return out

    def result(self, job: Job) -> dict[str, Any]:
        self.take(job)
        out = torch.empty(0, device="cuda")
        if isinstance(job.way, Triton):
            shares, dtype = dict(job.way.cut)["shares"], torch.bfloat16 if job.gelu else torch.float32
            out = torch.full((shares, job.rows, job.outputs), torch.nan, device="cuda", dtype=dtype)
        if isinstance(job.way, HopperTiling):
            half = job.way.half or job.gelu
            dtype = torch.bfloat16 if half else torch.float32
            out = torch.full((job.way.shares, job.rows, job.outputs), torch.nan, device="cuda", dtype=dtype)
            if job.code not in self.kernels:
                code = (self.folder / f"{job.code}.cubin").read_bytes()
                self.kernels[job.code] = hopper.loaded(code, job.way.shared_bytes(job.rows))
        laid, worst, same = self.laid(job), 0.0, True
        for index in (0, len(laid) - 1):
            y = self.run(job, laid[index], out).clone()
            again = self.run(job, laid[index], out)
            same &= torch.equal(y, again)
            whole = y.float() if y.ndim == 2 else y.float().sum(0)
            wanted = self.expected(job, self.weights[index])
            error = ((whole - wanted).norm() / wanted.norm()).item()
            worst = error if not error <= worst else worst  # NaN stays
        rounded = y.dtype == torch.bfloat16
        found: dict[str, Any] = {
            "error": worst,
            "same": same,
            "right": same and worst < (5e-3 if rounded else 1e-4),
        }
        if job.timed:
            us = self.microseconds(job, laid, out)
            found |= {"us": round(us, 2), "tbytes_per_s": round(2e-6 * job.outputs * job.inputs / us, 3)}
        return found

    def microseconds(self, job: Job, laid: list[torch.Tensor], out: torch.Tensor) -> float:
        rounds = max(1, -(-24 // len(laid)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for weight in laid:
                    self.run(job, weight, out)
        times = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / (rounds * len(laid)))
        return sorted(times[1:])[1]


def work(todo: Sequence[tuple[int, Job]], folder: Path, path: Path) -> None:
    """Run jobs one after the other, saying which has begun; a failure of the card ends the process."""
    with path.open("a", buffering=1) as lines:
        torch.cuda.init()
        torch.manual_seed(0)
        bench = Bench(folder)
        torch.mm(*(torch.ones(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))).sum().item()
        for index, job in todo:
            lines.write(json.dumps({"begun": index}) + "\n")
            try:
                found = bench.result(job)
                torch.cuda.synchronize()
            except Exception as error:  # the next process goes on with the next job
                lines.write(
                    json.dumps({"index": index, "failed": f"{type(error).__name__}: {error}"[:300]}) + "\n"
                )
                os._exit(1)
            lines.write(json.dumps({"index": index, **found}) + "\n")


def watched(
    target: Any, args: tuple[Any, ...], path: Path, first_s: float, quiet_s: float, until: float
) -> str:
    """Run in a process of its own until it ends, says nothing for too long, or time is up."""
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    size, heard, patience = path.stat().st_size, time.monotonic(), first_s
    while process.is_alive():
        process.join(0.05)
        now = time.monotonic()
        if path.stat().st_size != size:
            size, heard, patience = path.stat().st_size, now, quiet_s
        if now - heard > patience or now > until:
            process.kill()
            process.join()
            return "time is up" if now > until else "hung"
    return "ended" if process.exitcode == 0 else f"died ({process.exitcode})"


def run_all(
    tried: Sequence[Job], said: dict[str, str], folder: Path, out: Path, until: float
) -> list[dict[str, Any]]:
    """All jobs, over as many processes as it takes."""
    path = out / "hopper-lines.jsonl"
    path.write_text("")
    broken = {code for code, text in said.items() if text.startswith("FAILED")}
    todo = [
        (index, job)
        for index, job in enumerate(tried)
        if not isinstance(job.way, HopperTiling) or job.code not in broken
    ]
    rows: dict[int, dict[str, Any]] = {}
    while todo and time.monotonic() < until:
        end = watched(work, (todo, folder, path), path, 30, 12, until)
        begun = -1
        for line in path.read_text().splitlines():
            row = json.loads(line)
            begun = row.get("begun", begun)
            if "index" in row:
                rows[row["index"]] = row
        if begun >= 0 and begun not in rows:
            rows[begun] = {"failed": end}
        if begun < 0 and end != "ended":
            print("no process starts:", end, flush=True)
            break
        todo = [(index, job) for index, job in todo if index not in rows]
        if end != "ended":
            print(f"job {begun} {end}: {tried[begun]}", flush=True)
    return [
        {
            **{k: getattr(job, k) for k in ("rows", "outputs", "inputs", "overlap", "packed")},
            "way": as_json(job.way),
            "compiler": said.get(job.code, "") if isinstance(job.way, HopperTiling) else "",
            **{k: v for k, v in rows.get(index, {"failed": "not run"}).items() if k != "index"},
        }
        for index, job in enumerate(tried)
    ]


def as_json(way: HopperTiling | Triton | int) -> Any:
    if isinstance(way, Triton):
        return dict(way.cut)
    return way if isinstance(way, int) else asdict(way)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Fastest first for each shape; all that was wrong."""
    print("outputs/blocks/w_stages/x_stages/cluster/shares/half")
    for rows_, shapes in SHAPES.items():
        for outputs, inputs in shapes:
            of = [
                r
                for r in rows
                if (r["rows"], r["outputs"], r["inputs"]) == (rows_, outputs, inputs) and "us" in r
            ]
            print(f"{rows_} x {outputs} x {inputs}:")
            right = sorted((r for r in of if r["right"]), key=lambda r: r["us"])
            others = [r for r in right if is_other(r["way"])]
            ours = [r for r in right if not is_other(r["way"]) and r["overlap"] and not r["packed"]]
            what_if = [r for r in right if not r["overlap"] or r["packed"]]
            for r in [*others, *ours[:6], *ours[-1:], *what_if[:6]]:
                note = f"{'' if r['overlap'] else ' alone'}{' packed' if r['packed'] else ''}"
                print(f"  {r['us']:8.2f} us {r['tbytes_per_s']:.2f} TB/s  {way_in_short(r['way'])}{note}")
    wrong = [r for r in rows if not r.get("right")]
    print(f"{len(rows) - len(wrong)} right, {len(wrong)} not")
    for r in wrong[:40]:
        said = r.get("failed") or f"error {r['error']:.2e} same {r['same']}"
        shape = f"{r['rows']} x {r['outputs']} x {r['inputs']}"
        print(
            f"  {shape} {way_in_short(r['way'])}{' packed' if r['packed'] else ''}: {said} {r['compiler'][:200]}"
        )


def can_run() -> bool:
    return torch.cuda.is_available() and hopper.runs_on(torch.device("cuda"))


def guarded_choice(*args: Any) -> None:
    try:
        from hopper_choice import choose

        choose(*args)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seconds", type=float, default=60, help="at most, for the products alone")
    parser.add_argument(
        "--choice-seconds", type=float, default=300, help="at most, for passes and the cascade"
    )
    parser.add_argument("--cycles", type=int, default=60, help="of the whole cascade with each table")
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep what was found beside the kernels, if the cascade is faster",
    )
    args = parser.parse_args()
    begun = time.monotonic()
    with multiprocessing.get_context("fork").Pool(1) as pool:  # a card taken here would be lost to the others
        if not pool.apply(can_run):
            parser.error(f"this needs a card of compute capability {hopper.CAPABILITY}")
    args.out.mkdir(parents=True, exist_ok=True)
    tried = jobs()
    folder = Path(tempfile.mkdtemp(prefix="hopper-"))
    said = compile_all(tried, folder)
    print(f"{len(tried)} jobs, {len(said)} programs in {time.monotonic() - begun:.1f} s", flush=True)
    rows = run_all(tried, said, folder, args.out, time.monotonic() + args.seconds)
    show(rows)
    print(f"products took {time.monotonic() - begun:.1f} s", flush=True)
    measure.save(args.out, "hopper-products", {"commit": measure.commit(), "products": rows}, quiet=True)
    path = args.out / "hopper-passes.jsonl"
    path.write_text("")
    (args.out / "hopper-passes.json").unlink(missing_ok=True)
    until = time.monotonic() + args.choice_seconds
    chosen = (rows, args.out, path, args.cycles, args.write)
    print("choice:", watched(guarded_choice, chosen, path, 90, 90, until), flush=True)
    shutil.rmtree(folder)
    measure.save(args.out, "hopper-h200", summarise(args.out), quiet=True)
    print(f"all took {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
