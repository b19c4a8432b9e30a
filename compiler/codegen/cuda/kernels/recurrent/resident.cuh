// What a loop's resident kernel is made of: products of matrices whose columns stay in registers, and a barrier of all
// blocks. The text in front says MMA_TYPE, and THREADS, WARPS and J, the columns of a state that a block owns.
#include "tensor_cores.cuh"

__device__ __forceinline__ float rounded_bf16(float x) {
  bf16 y;
  store(&y, x);
  return wide(y);
}
__device__ __forceinline__ float rounded_f16(float x) {
  f16 y;
  store(&y, x);
  return wide(y);
}
__device__ __forceinline__ bool wide(bool x) { return x; }
__device__ __forceinline__ void store(bool *to, bool x) { *to = x; }
__device__ __forceinline__ float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? x : 0.0f; }

// A barrier of all blocks, which must be on the device at once. Whatever a block wrote before it arrived is there for all
// that have waited: its threads come together first, and the release and the acquire order what they did.
struct Barrier {
  unsigned *arrived; // 0 before the kernel
  unsigned target;
  __device__ __forceinline__ void arrive() {
    target += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      unsigned now;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
      while (now < target);
    }
    __syncthreads();
  }
};

// 16 bytes that another block may have written: from the level that all blocks share.
__device__ __forceinline__ uint4 shared_load(const void *from) {
  uint4 x;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from) : "memory");
  return x;
}

// The product of x [ROWS, TERMS], which all blocks made, and a matrix, of which this block keeps GROUPS * J columns: J
// neighbours in each group of H. Each warp sums CHUNKS * 32 of the terms, and leaves its sums in shared memory: for each
// warp WIDE columns of TALL * 16 rows. Within a chunk, a lane has 8 neighbouring terms of a row, the first half of them for
// one instruction and the second for the next, so that it loads 16 bytes at once; the matrix lies in the same order.
template <int H, int GROUPS, int TERMS, int CHUNKS, int TALL, bool TURNED> struct Product {
  static constexpr int TILES = (GROUPS * J + 7) / 8, WIDE = TILES * 8, PITCH = WARPS * CHUNKS * 32;
  static constexpr int ITEMS = TALL * CHUNKS, BATCH = ITEMS < 6 ? ITEMS : 6; // loads in flight
  unsigned right[CHUNKS][2][TILES][2];

  __device__ __forceinline__ void load(const unsigned short *__restrict__ matrix) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const int own = tile * 8 + lane / 4, group = own / J, j = blockIdx.x * J + own % J;
      const bool inside = group < GROUPS && j < H;
      const long long column = group * H + j;
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            unsigned both = 0;
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              const long long k = (warp * CHUNKS + c) * 32 + lane % 4 * 8 + half * 4 + i * 2 + n;
              if (inside && k < TERMS)
                both |= (unsigned)matrix[TURNED ? column * TERMS + k : k * (GROUPS * H) + column] << (16 * n);
            }
            right[c][half][tile][i] = both;
          }
    }
  }

  __device__ __forceinline__ void multiply_by(const unsigned short *x, float *sums) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned short *from = x + lane / 4 * PITCH + warp * CHUNKS * 32 + lane % 4 * 8;
    float d[TALL][TILES][4] = {};
#pragma unroll
    for (int first = 0; first < ITEMS; first += BATCH) {
      uint4 high[BATCH], low[BATCH];
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int item = first + b, tall = item / CHUNKS, c = item % CHUNKS;
        if (item < ITEMS) {
          high[b] = shared_load(from + tall * 16 * PITCH + c * 32);
          low[b] = shared_load(from + (tall * 16 + 8) * PITCH + c * 32);
        }
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int item = first + b, tall = item / CHUNKS, c = item % CHUNKS;
        if (item < ITEMS) {
          const unsigned one[4] = {high[b].x, low[b].x, high[b].y, low[b].y};
          const unsigned two[4] = {high[b].z, low[b].z, high[b].w, low[b].w};
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            multiply(d[tall][tile], one, right[c][0][tile][0], right[c][0][tile][1]);
            multiply(d[tall][tile], two, right[c][1][tile][0], right[c][1][tile][1]);
          }
        }
      }
    }
    float *to = sums + (warp * TALL * 16 + lane / 4) * WIDE + lane % 4 * 2;
#pragma unroll
    for (int tall = 0; tall < TALL; ++tall)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          store(to + (tall * 16 + r * 8) * WIDE + tile * 8, d[tall][tile][r * 2], d[tall][tile][r * 2 + 1]);
  }

  // The element of row b and own column j of a group, from the sums of all warps, in their order.
  __device__ __forceinline__ static float sum(const float *sums, int b, int group, int j) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += sums[(warp * TALL * 16 + b) * WIDE + group * J + j];
    return total;
  }
};
