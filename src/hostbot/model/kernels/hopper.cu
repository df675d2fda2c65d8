// A product of few rows with a large weight on a Hopper card: out[share][m][n] = sum over k of x[m][k] weight[n][k].
//
// Weights are the left operand of wgmma (64 outputs each), all rows at once the right one. Tiles of both come through
// the tensor copy engine, swizzled by 128 bytes, into two rings of shared memory, one for weights and one for rows:
// weights are asked for before the rows are there. Multiprocessors of a cluster have neighbouring outputs and the same
// rows: one of them in turn reads a tile of rows for all. Two warps ask for tiles, each group of four others multiplies.
//
// A tile whose outputs are no multiple of 64 is read past its end, and what comes of it is not written: the shared
// memory must reach as far (HopperTiling.shared_bytes).
//
// Given at compile time: TOKENS (rows, rounded up to 8), OUTPUTS (of a tile, a multiple of 8), BLOCKS (of 64 of them
// for each group of four warps), GROUPS, W_STAGES and X_STAGES (tiles in a ring), CLUSTER, HALF (write bfloat16, else
// float32), GELU (of the sum and a bias), OVERLAP (start before the kernel before is done), PACKED (each tile of
// weights in one piece); and multiply(), the instruction for that many rows.

constexpr u32 STEP = 64;  // inputs of a tile: 128 bytes, the swizzle's width
constexpr u32 W_BYTES = OUTPUTS * STEP * 2, X_BYTES = TOKENS * STEP * 2;
constexpr u32 BLOCK_BYTES = 64 * STEP * 2;
constexpr u32 WARPS = 4 * GROUPS;  // that multiply
constexpr bool CROWDED = BLOCKS > 1;  // registers must be taken from the warps that ask and given to those that multiply
constexpr u32 THREADS = 32 * WARPS + (CROWDED ? 128 : 64);
constexpr u32 LINE = 68;  // floats between rows of a staged tile: neither writing nor reading it meets a bank twice

struct alignas(64) Map {
    char bytes[128];
};

__device__ __forceinline__ u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Without a scope: what was read came through wgmma and is done with. A release at the cluster's scope is a fence of the
// whole card (MEMBAR.ALL.GPU), almost a microsecond at every step.
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// All of the cluster are here; barriers are made known by their own fence, and no other data is handed over.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.relaxed.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;\n" ::
            : "memory");
}

// This warp signals to no neighbour any more. A fence, so that its last signals have arrived; once, and before the
// sums are written, so that it has nothing else to wait for.
__device__ __forceinline__ void cluster_done() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// None leaves while another may still signal to it.
__device__ __forceinline__ void cluster_leave() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ u64 read_once() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void load_weights(u32 target, const Map& map, u32 barrier, int k, int n, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(k), "r"(n), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void load_rows(u32 target, const Map& map, u32 barrier, int k) {
    if constexpr (CLUSTER == 1) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4}], [%2];" ::"r"(target),
            "l"(&map), "r"(barrier), "r"(k), "r"(0)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
            "l"(&map), "r"(barrier), "r"(k), "r"(0), "h"(static_cast<u16>((1 << CLUSTER) - 1))
            : "memory");
    }
}

// Where wgmma finds a tile of 128-byte lines, swizzled: eight lines are 1,024 bytes.
__device__ __forceinline__ u64 matrix(u32 address) {
    return (static_cast<u64>(1) << 62) | (static_cast<u64>(1024 >> 4) << 32) | (static_cast<u64>(1) << 16) |
           ((address & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void keep(float (&sums)[TOKENS / 2]) {
#pragma unroll
    for (int i = 0; i < TOKENS / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ float from_half(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }

__device__ __forceinline__ u32 to_halves(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float gelu(float y) {
    return __fdividef(y, 1.0f + __expf(-1.5957691216057308f * (y + 0.044715f * y * y * y)));
}

struct Barriers {
    u64 w_full[W_STAGES], w_empty[W_STAGES], x_full[X_STAGES], x_empty[X_STAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
product(const __grid_constant__ Map weight, const __grid_constant__ Map x, const u16* bias, void* out, u32 rows,
        u32 outputs, u32 inputs) {
    extern __shared__ char memory[];
    __shared__ Barriers barriers;
    const u32 ring = (shared_address(memory) + 1023) & ~1023u;
    const u32 x_ring = ring + W_STAGES * W_BYTES;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 first_output = blockIdx.x * OUTPUTS;
    const u32 steps = (inputs + STEP - 1) / STEP;
    const u32 start = steps * blockIdx.y / gridDim.y;
    const u32 count = steps * (blockIdx.y + 1) / gridDim.y - start;

    auto ask_for_weights = [&](u32 i, u64 policy) {
        const u32 slot = i % W_STAGES, full = shared_address(&barriers.w_full[slot]);
        barrier_expect(full, W_BYTES);
        if constexpr (PACKED)
            load_weights(ring + slot * W_BYTES, weight, full, 0, (blockIdx.x * steps + start + i) * OUTPUTS, policy);
        else
            load_weights(ring + slot * W_BYTES, weight, full, (start + i) * STEP, first_output, policy);
    };

    if (warp == WARPS + 1 && lane == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&x) : "memory");
    if (warp == WARPS && lane == 0) {
        for (u32 i = 0; i < W_STAGES; ++i) {
            barrier_init(shared_address(&barriers.w_full[i]), 1);
            barrier_init(shared_address(&barriers.w_empty[i]), WARPS);
        }
        for (u32 i = 0; i < X_STAGES; ++i) {
            barrier_init(shared_address(&barriers.x_full[i]), 1);
            barrier_init(shared_address(&barriers.x_empty[i]), WARPS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        const u64 policy = read_once();
        for (u32 i = 0; i < W_STAGES && i < count; ++i) ask_for_weights(i, policy);
    }
    __syncwarp();
    if constexpr (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();
    if constexpr (OVERLAP) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

    if (warp >= WARPS) {
        if constexpr (CROWDED) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == WARPS && lane == 0) {
            const u64 policy = read_once();
            for (u32 i = W_STAGES; i < count; ++i) {
                barrier_wait(shared_address(&barriers.w_empty[i % W_STAGES]), (i / W_STAGES & 1) ^ 1);
                ask_for_weights(i, policy);
            }
        }
        if (warp == WARPS + 1 && lane == 0) {
            const u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
            if constexpr (OVERLAP) asm volatile("griddepcontrol.wait;" ::: "memory");
            for (u32 i = 0; i < count; ++i) {
                const u32 slot = i % X_STAGES, full = shared_address(&barriers.x_full[slot]);
                barrier_wait(shared_address(&barriers.x_empty[slot]), (i / X_STAGES & 1) ^ 1);
                barrier_expect(full, X_BYTES);
                if (i % CLUSTER == rank) load_rows(x_ring + slot * X_BYTES, x, full, (start + i) * STEP);
            }
        }
        if constexpr (CLUSTER > 1) cluster_done();
    } else {
        if constexpr (CROWDED) asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        const u32 first_block = warp / 4 * BLOCKS;
        float sums[BLOCKS][TOKENS / 2];
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
#pragma unroll
            for (int i = 0; i < TOKENS / 2; ++i) sums[b][i] = 0;
        }
        auto release = [&](u32 i) {  // what step i read may be written over
            if (lane == 0) barrier_arrive(shared_address(&barriers.w_empty[i % W_STAGES]));
            const u32 x_empty = shared_address(&barriers.x_empty[i % X_STAGES]);
            if constexpr (CLUSTER > 1) {
                if (lane < CLUSTER) barrier_arrive_at(x_empty, lane);
            } else {
                if (lane == 0) barrier_arrive(x_empty);
            }
        };
        for (u32 i = 0; i < count; ++i) {
            const u32 w_slot = i % W_STAGES, x_slot = i % X_STAGES;
            barrier_wait(shared_address(&barriers.w_full[w_slot]), i / W_STAGES & 1);
            barrier_wait(shared_address(&barriers.x_full[x_slot]), i / X_STAGES & 1);
            const u64 left = matrix(ring + w_slot * W_BYTES + first_block * BLOCK_BYTES);
            const u64 right = matrix(x_ring + x_slot * X_BYTES);
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) keep(sums[b]);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0; k < STEP / 16; ++k) {  // 16 inputs are 32 bytes
#pragma unroll
                for (int b = 0; b < BLOCKS; ++b)
                    multiply(sums[b], left + 2 * k + b * (BLOCK_BYTES >> 4), right + 2 * k);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
            for (int b = 0; b < BLOCKS; ++b) keep(sums[b]);
            if (i > 0) {
                wait_for_products<1>();
                release(i - 1);
            }
        }
        wait_for_products<0>();
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) keep(sums[b]);
        if constexpr (CLUSTER > 1) cluster_done();

        // All tiles are read: the rings hold the sums, turned, so that lines of outputs are written.
        asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory");
        float* staged = reinterpret_cast<float*>(memory + (ring - shared_address(memory)));
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            const u32 in_block = warp % 4 * 16 + lane / 4;  // and 8 further on
            float* mine = staged + (first_block + b) * (TOKENS * LINE) + lane % 4 * 2 * LINE + in_block;
#pragma unroll
            for (int j = 0; j < TOKENS / 8; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i) mine[(8 * j + i % 2) * LINE + i / 2 * 8] = sums[b][4 * j + i];
            }
        }
        asm volatile("bar.sync 1, %0;" ::"n"(32 * WARPS) : "memory");
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            const u32 column = threadIdx.x % 16 * 4, in_tile = (first_block + b) * 64 + column;
            const u32 n = first_output + in_tile;
            if (in_tile >= OUTPUTS || n >= outputs) break;
            const float* read = staged + (first_block + b) * (TOKENS * LINE) + column;
            float4 added;
            if constexpr (GELU)
                added = make_float4(from_half(bias[n]), from_half(bias[n + 1]), from_half(bias[n + 2]),
                                    from_half(bias[n + 3]));
            for (u32 m = threadIdx.x % 128 / 16; m < rows; m += 8) {
                float4 y = *reinterpret_cast<const float4*>(read + m * LINE);
                if constexpr (GELU)
                    y = make_float4(gelu(y.x + added.x), gelu(y.y + added.y), gelu(y.z + added.z), gelu(y.w + added.w));
                const u64 place = (static_cast<u64>(blockIdx.y) * rows + m) * outputs + n;
                if constexpr (HALF) {
                    const uint2 halves = make_uint2(to_halves(y.x, y.y), to_halves(y.z, y.w));
                    *reinterpret_cast<uint2*>(static_cast<u16*>(out) + place) = halves;
                } else {
                    *reinterpret_cast<float4*>(static_cast<float*>(out) + place) = y;
                }
            }
        }
    }
    if constexpr (CLUSTER > 1) cluster_leave();
}
