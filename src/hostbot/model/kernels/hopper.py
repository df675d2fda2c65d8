"""The product of ``hopper.cu``: compiled by NVRTC when first needed, launched through the driver.

Legend: M rows (tokens of a pass), K inputs, N outputs, P shares of K.

Triton has no clusters, whose multiprocessors read the rows once for all of them; the driver's launch has. Both
libraries come with a CUDA build of torch and its card's driver; nothing is compiled ahead. Its machine code runs on
cards of compute capability 9.0 and on no others, older or newer: ``runs_on`` says so, ``hopper_product`` refuses.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

CAPABILITY = (9, 0)
SOURCE = Path(__file__).with_name("hopper.cu")
MOST_ROWS = 160
STEP = 64
"""Inputs of a tile."""
MOST_SHARED = 227 * 1024 - 2048
"""Bytes of shared memory that rings may fill; the rest holds barriers and what aligns the rings."""


@dataclass(frozen=True, kw_only=True)
class HopperTiling:
    """How a product is cut up; see the head of ``hopper.cu``."""

    outputs: int
    """Outputs of a tile, a multiple of 8."""
    w_stages: int
    """Tiles of weights in flight."""
    x_stages: int
    """Tiles of rows in flight."""
    blocks: int = 1
    """Blocks of 64 outputs for each group of four warps."""
    cluster: int = 1
    """Neighbouring tiles of outputs that read the rows together."""
    shares: int = 1
    half: bool = False
    """Shares in bfloat16 rather than float32: as exact as one rounded sum, and half the bytes."""

    def shared_bytes(self, rows: int) -> int:
        """Bytes of shared memory: both rings, what is read past the last tile, the sums on their way out, alignment."""
        of_groups = 64 * self.blocks * self.groups
        rings = 2 * STEP * (self.outputs * self.w_stages + _tokens(rows) * self.x_stages)
        read = 2 * STEP * (self.outputs * (self.w_stages - 1) + of_groups)
        sums = of_groups // 64 * _tokens(rows) * 68 * 4
        return max(rings, read, sums) + 1024

    def grid(self, outputs: int) -> tuple[int, int, int]:
        """Blocks to launch: tiles of outputs in whole clusters, and shares."""
        return -(-outputs // (self.outputs * self.cluster)) * self.cluster, self.shares, 1

    @property
    def groups(self) -> int:
        """Groups of four warps that multiply."""
        return -(-self.outputs // (64 * self.blocks))

    @property
    def threads(self) -> int:
        """Those that multiply, and two warps (four where registers are scarce) that ask for tiles."""
        return 128 * self.groups + (128 if self.blocks > 1 else 64)

    def fits(self, rows: int, outputs: int, inputs: int) -> bool:
        """Whether a product of this shape can be cut so."""
        of_tile = self.outputs % 8 == 0 and 8 <= self.outputs <= 256 and outputs % 4 == 0 and inputs % 8 == 0
        in_shares = 1 <= self.shares <= -(-inputs // STEP) and 1 <= self.cluster <= 8
        return of_tile and in_shares and rows <= MOST_ROWS and self.shared_bytes(rows) <= MOST_SHARED + 1024


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def runs_on(device: torch.device) -> bool:
    """Whether a device can run this product at all."""
    return device.type == "cuda" and _capability(device) == CAPABILITY


def _tokens(rows: int) -> int:
    return -(-rows // 8) * 8


def _instruction(tokens: int) -> str:
    """``multiply``: 64 outputs of 16 inputs times all rows, added to 64 x ``tokens`` sums."""
    count = tokens // 2
    names = ", ".join(f"%{i}" for i in range(count))
    sums = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        f"__device__ __forceinline__ void multiply(float (&d)[{count}], u64 a, u64 b) {{\n"
        '    asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n'
        f'wgmma.mma_async.sync.aligned.m64n{tokens}k16.f32.bf16.bf16 {{{names}}}, "\n'
        f'        "%{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}\\n" : {sums} : "l"(a), "l"(b));\n}}\n'
    )


def source(tiling: HopperTiling, rows: int, gelu: bool, overlap: bool, packed: bool = False) -> str:
    """The program for one tiling."""
    numbers = {
        "TOKENS": _tokens(rows),
        "OUTPUTS": tiling.outputs,
        "BLOCKS": tiling.blocks,
        "GROUPS": tiling.groups,
        "W_STAGES": tiling.w_stages,
        "X_STAGES": tiling.x_stages,
        "CLUSTER": tiling.cluster,
        "HALF": int(tiling.half or gelu),
        "GELU": int(gelu),
        "OVERLAP": int(overlap),
        "PACKED": int(packed),
    }
    head = "typedef unsigned short u16;\ntypedef unsigned int u32;\ntypedef unsigned long long u64;\n"
    defined = "".join(f"#define {name} {value}\n" for name, value in numbers.items())
    return head + defined + _instruction(_tokens(rows)) + SOURCE.read_text()


@cache
def _nvrtc() -> ctypes.CDLL:
    """The compiler's library, as it came with torch."""
    folders = [Path(folder) / "nvidia" for folder in sys.path if folder]
    found = [str(path) for folder in folders for path in sorted(folder.glob("*/lib/libnvrtc.so.*[0-9]"))]
    for name in (*reversed(found), "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("libnvrtc is nowhere to be found: a CUDA build of torch brings it")


def compiled(program: str, options: Sequence[str] = ()) -> tuple[bytes, str]:
    """Machine code for Hopper, and what the compiler had to say."""
    nvrtc, handle = _nvrtc(), c_void_p()

    def log() -> str:
        size = c_size_t()
        nvrtc.nvrtcGetProgramLogSize(handle, byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(handle, text)
        return text.value.decode()

    def check(status: int) -> None:
        if status != 0:
            raise RuntimeError(f"NVRTC error {status} on {SOURCE.name}: {log()}")

    check(nvrtc.nvrtcCreateProgram(byref(handle), program.encode(), b"hopper.cu", 0, None, None))
    try:
        flags = [b"--gpu-architecture=sm_90a", b"--std=c++17", *(option.encode() for option in options)]
        check(nvrtc.nvrtcCompileProgram(handle, len(flags), (c_char_p * len(flags))(*flags)))
        size = c_size_t()
        check(nvrtc.nvrtcGetCUBINSize(handle, byref(size)))
        code = ctypes.create_string_buffer(size.value)
        check(nvrtc.nvrtcGetCUBIN(handle, code))
        return code.raw, log()
    finally:
        nvrtc.nvrtcDestroyProgram(byref(handle))


class _AttributeValue(ctypes.Union):
    _fields_ = [("pad", c_char * 64), ("cluster", c_uint * 3), ("number", c_int)]


class _Attribute(Structure):
    _fields_ = [("id", c_int), ("pad", c_char * 4), ("value", _AttributeValue)]


class _LaunchConfig(Structure):
    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(_Attribute)),
        ("num_attributes", c_uint),
    ]


CLUSTER_DIMENSION, PROGRAMMATIC_SERIALIZATION, MAX_DYNAMIC_SHARED = 4, 6, 8
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3
"""The driver's numbers for these, as in ``cuda.h``."""


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int, what: str) -> None:
    if status != 0:
        text = c_char_p()
        _driver().cuGetErrorString(status, byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'?').decode()} ({status})")


def loaded(code: bytes, shared: int) -> c_void_p:
    """The kernel of this machine code, in the current context."""
    module, kernel = c_void_p(), c_void_p()
    _check(_driver().cuModuleLoadData(byref(module), code), "cuModuleLoadData")
    _check(_driver().cuModuleGetFunction(byref(kernel), module, b"product"), "cuModuleGetFunction")
    _check(_driver().cuFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED, shared), "cuFuncSetAttribute")
    return kernel


@cache
def machine_code(tiling: HopperTiling, tokens: int, gelu: bool, overlap: bool) -> bytes:
    """The program for one tiling, compiled."""
    code, _ = compiled(source(tiling, tokens, gelu, overlap))
    return code


@cache
def _kernel(tiling: HopperTiling, tokens: int, gelu: bool, overlap: bool, device: int) -> c_void_p:
    return loaded(machine_code(tiling, tokens, gelu, overlap), tiling.shared_bytes(tokens))


class _Map:
    """A tensor map: 128 bytes that tell the copy engine how a matrix lies and what a tile of it is."""

    def __init__(self, address: int, lines: int, width: int, box: int) -> None:
        self.buffer = (c_char * 192)()
        self.address = (ctypes.addressof(self.buffer) + 63) & ~63
        sizes, strides = (c_uint64 * 2)(width, lines), (c_uint64 * 1)(2 * width)
        boxes, steps = (c_uint * 2)(STEP, box), (c_uint * 2)(1, 1)
        status = _driver().cuTensorMapEncodeTiled(
            c_void_p(self.address),
            BFLOAT16,
            2,
            c_void_p(address),
            sizes,
            strides,
            boxes,
            steps,
            0,
            SWIZZLE_128B,
            PROMOTE_256B,
            0,
        )
        _check(status, f"cuTensorMapEncodeTiled of {lines} x {width}")


def launch_kernel(
    kernel: c_void_p,
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    tiling: HopperTiling,
    out: Float[Tensor, "P M N"],
    bias: Float[Tensor, " N"] | None,
    overlap: bool,
    packed: bool = False,
) -> None:
    """Start a compiled kernel on the current stream."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    of_weight = (weight.numel() // STEP, STEP) if packed else (outputs, inputs)
    maps = (
        _Map(weight.data_ptr(), *of_weight, tiling.outputs),
        _Map(x.data_ptr(), rows, inputs, _tokens(rows)),
    )
    numbers = [c_uint(rows), c_uint(outputs), c_uint(inputs)]
    pointers = [c_void_p(bias.data_ptr() if bias is not None else None), c_void_p(out.data_ptr())]
    places = [m.address for m in maps] + [ctypes.addressof(value) for value in (*pointers, *numbers)]
    attributes = (_Attribute * 2)()
    attributes[0].id, attributes[0].value.cluster = CLUSTER_DIMENSION, (c_uint * 3)(tiling.cluster, 1, 1)
    attributes[1].id, attributes[1].value.number = PROGRAMMATIC_SERIALIZATION, 1
    config = _LaunchConfig(
        grid=(c_uint * 3)(*tiling.grid(outputs)),
        block=(c_uint * 3)(tiling.threads, 1, 1),
        shared=tiling.shared_bytes(rows),
        stream=torch.cuda.current_stream(x.device).cuda_stream,
        attributes=attributes,
        num_attributes=1 + overlap,
    )
    status = _driver().cuLaunchKernelEx(byref(config), kernel, (c_void_p * len(places))(*places), None)
    _check(status, f"cuLaunchKernelEx of {tiling}")


def hopper_product(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    tiling: HopperTiling,
    out: Float[Tensor, "P M N"],
    gelu_bias: Float[Tensor, " N"] | None = None,
    overlap: bool = True,
) -> None:
    """The product of up to ``MOST_ROWS`` rows, cut as told; with ``gelu_bias``, GELU (tanh) of it plus the bias."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    half = tiling.half or gelu_bias is not None
    if not runs_on(x.device):
        had = f"capability {_capability(x.device)}" if x.is_cuda else "none"
        raise RuntimeError(
            f"the Hopper product needs a card of capability {CAPABILITY}; {x.device} has {had}"
        )
    assert x.dtype == weight.dtype == torch.bfloat16
    assert tiling.fits(rows, outputs, inputs), (tiling, rows, outputs, inputs)
    assert x.is_contiguous() and weight.is_contiguous() and out.is_contiguous()  # noqa: PT018
    assert out.dtype == (torch.bfloat16 if half else torch.float32)
    assert out.shape == (tiling.shares, rows, outputs)
    assert tiling.shares == 1 or gelu_bias is None
    with torch.cuda.device(x.device):
        kernel = _kernel(tiling, _tokens(rows), gelu_bias is not None, overlap, x.device.index)
        launch_kernel(kernel, x, weight, tiling, out, gelu_bias, overlap)
