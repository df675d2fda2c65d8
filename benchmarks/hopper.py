"""The Hopper product alone and in a pass: right against float32, and how fast, for every way to cut it.

    python benchmarks/hopper.py --out benchmarks/results

Weights come from memory, not from a cache: each product cycles through more of them than any cache holds, in one graph.
Every cut runs in a process that may fail or hang without losing the others. The fastest that were right are then tried
in a cascade pass of eight layers, as ``kernels.py`` does, and the kernels of such a pass are timed.
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measure
import torch

from hostbot.model.kernels import hopper
from hostbot.model.kernels.hopper import HopperTiling

MULTIPROCESSORS = 132
CYCLED = 300e6
"""Bytes of weights that a timed graph reads before it comes back to the first."""
TILES = {
    147: [
        (128, 1, 8, 4),
        (256, 2, 4, 4),
        (192, 1, 5, 4),
        (112, 1, 8, 5),
        (128, 1, 7, 5),
        (128, 1, 6, 6),
        (144, 1, 7, 4),
        (216, 2, 4, 4),
        (256, 2, 5, 3),
        (192, 1, 6, 3),
    ],
    8: [
        (64, 1, 24, 12),
        (128, 1, 12, 8),
        (128, 1, 12, 12),
        (72, 1, 20, 16),
        (112, 1, 13, 13),
        (256, 2, 6, 6),
    ],
    32: [(64, 1, 16, 16), (128, 1, 10, 8), (72, 1, 16, 16), (96, 1, 12, 12), (32, 1, 16, 16)],
}
"""Outputs, blocks, stages of weights, stages of rows."""
SHAPES = {
    147: [(9248, 3072), (3072, 3072), (14336, 3072), (3072, 14336)],
    8: [(9248, 3072), (3072, 3072), (14336, 3072), (3072, 14336)],
    32: [(9248, 1024), (1024, 3072), (3072, 1024), (4096, 1024), (1024, 4096)],
}
"""Outputs, inputs of a pass's products."""
GELUS = [(14336, 3072), (4096, 1024)]
PASSES = {"o": 147, "a": 32, "p": 8}


@dataclass(frozen=True, kw_only=True)
class Job:
    rows: int
    outputs: int
    inputs: int
    way: HopperTiling | int
    """A number: the library's product in so many shares."""
    overlap: bool = True
    packed: bool = False
    timed: bool = True

    @property
    def gelu(self) -> bool:
        return (self.outputs, self.inputs) in GELUS

    @property
    def code(self) -> str:
        """The name of its machine code."""
        assert isinstance(self.way, HopperTiling)
        numbers = "-".join(str(int(v)) for k, v in asdict(self.way).items() if k != "shares")
        return f"{hopper._tokens(self.rows)}-{numbers}-{self.gelu:d}{self.overlap:d}{self.packed:d}"


def cuts(rows: int, outputs: int, inputs: int) -> Iterator[HopperTiling]:
    """What fills most multiprocessors once."""
    gelu = (outputs, inputs) in GELUS
    for of_tile, blocks, w_stages, x_stages in TILES[rows]:
        for cluster in (2, 1, 4) if rows > 32 else (1, 2):
            tiles = -(-outputs // (of_tile * cluster)) * cluster
            most = 128 if cluster == 4 else MULTIPROCESSORS
            fill = most // tiles
            for shares in {1} if gelu else {fill, fill - 1}:
                enough = (
                    0.7 if rows > 32 else 0.4
                ) * MULTIPROCESSORS <= tiles * shares <= most and inputs // 64 >= 3 * shares
                for half in (True,) if gelu else (False, True) if shares == fill else (False,):
                    tiling = HopperTiling(
                        outputs=of_tile,
                        blocks=blocks,
                        w_stages=w_stages,
                        x_stages=x_stages,
                        cluster=cluster,
                        shares=shares,
                        half=half,
                    )
                    if enough and tiling.fits(rows, outputs, inputs):
                        yield tiling


def jobs() -> list[Job]:
    """The library, what may show a fault, all cuts, and what they owe to overlap and would to packed weights."""
    library, odd, found, what_if = [], [], [], []
    plain = HopperTiling(outputs=128, w_stages=8, x_stages=4)
    for rows in (1, 8, 17, 32, 147, 148, 160):
        for way in (
            plain,
            replace(plain, cluster=2, shares=3),
            replace(plain, outputs=72, cluster=4, half=True),
        ):
            way = replace(way, x_stages=3)
            odd.append(Job(rows=rows, outputs=1000, inputs=776, way=way, timed=False))
    wide = HopperTiling(outputs=256, blocks=2, w_stages=4, x_stages=4, cluster=2, shares=2)
    odd.append(Job(rows=147, outputs=1000, inputs=776, way=wide, timed=False))
    for rows, shapes in SHAPES.items():
        for outputs, inputs in shapes:
            shape = {"rows": rows, "outputs": outputs, "inputs": inputs}
            gelu = (outputs, inputs) in GELUS
            library += [Job(**shape, way=shares) for shares in ((1,) if gelu else (1, 2, 4))]
            ways = list(cuts(rows, outputs, inputs))
            found += [Job(**shape, way=way) for way in ways]
            for way in ways:
                if rows == 147 and way.cluster == 2 and (way.outputs, way.x_stages) in ((128, 4), (256, 4)):
                    what_if.append(Job(**shape, way=way, overlap=False))
                    if outputs % way.outputs == 0:
                        what_if.append(Job(**shape, way=way, packed=True))
    return library + odd + found + what_if


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
        kernel = self.kernels[job.code]
        bias = self.bias if job.gelu else None
        hopper.launch_kernel(kernel, self.x, weight, job.way, out, bias, job.overlap, job.packed)
        return out

    def result(self, job: Job) -> dict[str, Any]:
        self.take(job)
        out = torch.empty(0, device="cuda")
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
        (index, job) for index, job in enumerate(tried) if isinstance(job.way, int) or job.code not in broken
    ]
    rows: dict[int, dict[str, Any]] = {}
    while todo and time.monotonic() < until:
        end = watched(work, (todo, folder, path), path, 30, 6, until)
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
            "way": job.way if isinstance(job.way, int) else asdict(job.way),
            "compiler": said.get(job.code, "") if isinstance(job.way, HopperTiling) else "",
            **{k: v for k, v in rows.get(index, {"failed": "not run"}).items() if k != "index"},
        }
        for index, job in enumerate(tried)
    ]


def short(way: Any) -> str:
    if isinstance(way, int):
        return f"library x{way}"
    keys = ("outputs", "blocks", "w_stages", "x_stages", "cluster", "shares", "half")
    return "/".join(str(int(way[key])) for key in keys)


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
            ours = [r for r in right if not isinstance(r["way"], int) and r["overlap"] and not r["packed"]]
            what_if = [r for r in right if not r["overlap"] or r["packed"]]
            for r in [*(r for r in right if isinstance(r["way"], int)), *ours[:6], *ours[-1:], *what_if[:6]]:
                note = f"{'' if r['overlap'] else ' alone'}{' packed' if r['packed'] else ''}"
                print(f"  {r['us']:8.2f} us {r['tbytes_per_s']:.2f} TB/s  {short(r['way'])}{note}")
    wrong = [r for r in rows if not r.get("right")]
    print(f"{len(rows) - len(wrong)} right, {len(wrong)} not")
    for r in wrong[:40]:
        said = r.get("failed") or f"error {r['error']:.2e} same {r['same']}"
        shape = f"{r['rows']} x {r['outputs']} x {r['inputs']}"
        print(f"  {shape} {short(r['way'])}{' packed' if r['packed'] else ''}: {said} {r['compiler'][:200]}")


def candidates(
    rows: Sequence[dict[str, Any]], num_rows: int, outputs: int, inputs: int, count: int
) -> list[Any]:
    """The fastest right cuts of a product, some of them with few shares: someone must add these up."""
    of = [
        r
        for r in rows
        if (r["rows"], r["outputs"], r["inputs"]) == (num_rows, outputs, inputs)
        and r.get("right")
        and "us" in r
        and r["overlap"]
        and not r["packed"]
        and not isinstance(r["way"], int)
    ]
    of.sort(key=lambda r: r["us"])
    few = sorted(of, key=lambda r: r["us"] + 0.4 * (r["way"]["shares"] - 1) * (1 if r["way"]["half"] else 2))
    best = [r["way"] for r in (*few[:count], *of[: max(1, count // 2)])]
    return [HopperTiling(**way) for i, way in enumerate(best) if way not in best[:i]]


def in_passes(rows: Sequence[dict[str, Any]], out: Path, path: Path) -> None:
    """A pass of each kind with the ways as they stand, then with the best of what was found."""
    from kernels import Choice, few_layers, microseconds, passes, shown, table, try_all
    from models import build, inputs

    from hostbot.model.kernels import product
    from hostbot.model.sizes import wan5b_model
    from hostbot.policy.cascade import Cascade
    from hostbot.policy.contract import CascadeConfig

    with path.open("a", buffering=1) as lines, torch.inference_mode():
        device = torch.device("cuda")
        config = few_layers(wan5b_model(), 8)
        cascade, context = (
            Cascade(build(config, device, torch.bfloat16), CascadeConfig()),
            inputs(config, device),
        )
        cascade.instruct(context.text)
        cascade.watch(context.demo)
        result: dict[str, Any] = {}
        for name, num_rows in PASSES.items():
            call = passes(cascade)[name]
            lines.write(json.dumps({"pass": name}) + "\n")
            found: dict[str, Any] = {
                "before_us": round(microseconds(call), 1),
                "before_kernels": profiled(call),
            }
            before = call()
            print(
                name,
                "before",
                found["before_us"],
                *map(brief, found["before_kernels"]),
                sep="\n  ",
                flush=True,
            )
            assert isinstance(before, torch.Tensor)
            before = before.clone()
            result[name], found["choices"] = found, {}
            for outputs, inner in SHAPES[num_rows]:
                key = (sum(product._widths(num_rows)), outputs, inner)
                tried = [product.MEASURED[key], *candidates(rows, num_rows, outputs, inner, 4)]
                choice = Choice(
                    name=f"{num_rows}x{outputs}x{inner}", table=product.MEASURED, key=key, candidates=tried
                )
                timed = try_all(choice, call, microseconds)
                lines.write(json.dumps({"choice": choice.name}) + "\n")
                found["choices"][choice.name] = [{"pass_us": us, "cut": shown(cut)} for us, cut in timed]
                print(name, choice.name, " | ".join(f"{us} {told(cut)}" for us, cut in timed), flush=True)
            found["after_us"], found["after_kernels"] = round(microseconds(call), 1), profiled(call)
            after = call()
            assert isinstance(after, torch.Tensor)
            found["difference"] = ((after - before).norm() / before.norm()).item()
            found["same"] = torch.equal(after, call())
            print(
                name, "after", found["after_us"], "difference", found["difference"], found["same"], flush=True
            )
            measure.save(out, "hopper-passes", {"passes": result, "table": table()}, quiet=True)
            print(name, "after", *map(brief, found["after_kernels"]), sep="\n  ", flush=True)


def brief(row: dict[str, Any]) -> str:
    return f"{row['calls']} x {row['us']} us, gap {row['gap_us']}: {row['kernel'][:40]}"


def told(cut: Any) -> str:
    return (
        short(cut if isinstance(cut, int) else asdict(cut))
        if isinstance(cut, int | HopperTiling)
        else "triton"
    )


def profiled(call: Any) -> list[dict[str, Any]]:
    """The kernels of one replayed pass: how often, how long, and how long until the next begins after they end."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    rows: dict[str, list[tuple[float, float]]] = {}
    for event, following in zip(events, [*events[1:], events[-1]], strict=True):
        span = event.time_range
        gap = following.time_range.start - span.end if following is not event else 0
        rows.setdefault(event.name[:60], []).append((span.end - span.start, gap))
    table = [
        {
            "kernel": name,
            "calls": len(times),
            "us": round(sum(t for t, _ in times) / len(times), 2),
            "gap_us": round(sum(g for _, g in times) / len(times), 2),
        }
        for name, times in rows.items()
    ]
    return sorted(table, key=lambda row: -row["us"] * row["calls"])


def guarded_passes(rows: Sequence[dict[str, Any]], out: Path, path: Path) -> None:
    try:
        in_passes(rows, out, path)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seconds", type=float, default=30, help="for the products alone")
    parser.add_argument("--pass-seconds", type=float, default=50, help="for the passes")
    args = parser.parse_args()
    begun = time.monotonic()
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
    until = time.monotonic() + args.pass_seconds
    print("passes:", watched(guarded_passes, (rows, args.out, path), path, 40, 30, until), flush=True)
    shutil.rmtree(folder)
    print(f"all took {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
