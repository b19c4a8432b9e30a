// What a loop's resident kernel is made of: products of matrices whose columns stay in registers, and the exchange of the
// products' left factors between blocks. The text in front says MMA_TYPE, and THREADS, WARPS and J, the columns of a state
// that a block owns. One more warp clears places of the exchange.
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

// A barrier of all blocks before the first step; they must be on the device at once. Whatever a block wrote before it arrived is there for all
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

// The exchange. A value lies in one of 4 places, in turn by step. An element that is not written yet is EMPTY, a NaN that no
// conversion to 16 bits gives, so the element itself says that it is there: a reader needs one trip to the L2 cache, and a
// writer waits for nothing. In step s the clearing warp makes the place of step s - 2 EMPTY, which nobody reads any more:
// its block had all of step s - 1 before, and others write that after they have read step s - 2. Its fence comes before the
// barrier of the block in step s; so what the block writes afterwards, in step s + 1 at the latest, is visible only after
// the place is EMPTY. Others read the place again in step s + 2, after they have seen what the block wrote in step s + 1.
static constexpr unsigned short EMPTY = 0xFFFF;

__device__ __forceinline__ void put(unsigned short *to, unsigned short bits) {
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(to), "h"(bits) : "memory");
}
template <class T> __device__ __forceinline__ void put(unsigned short *to, float x) {
  T y;
  store(&y, x);
  put(to, y.bits);
}
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ uint4 take(const void *from) {
  uint4 x;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
// Whether one of two elements is EMPTY: a half of the complement is 0.
__device__ __forceinline__ unsigned empty_in(unsigned x) { return (~x - 0x00010001u) & x & 0x80008000u; }
__device__ __forceinline__ unsigned empty_in(const uint4 &x) {
  return empty_in(x.x) | empty_in(x.y) | empty_in(x.z) | empty_in(x.w);
}

// The product of x [ROWS, TERMS], which all blocks made, and a matrix, of which this block keeps GROUPS * J columns: J
// neighbours in each group of H. Each warp sums CHUNKS * 32 of the terms, and leaves its sums in shared memory: for each
// warp WIDE columns of TALL * 16 rows. Within a chunk, a lane has 8 neighbouring terms of a row, the first half of them for
// one instruction and the second for the next, so that it loads 16 bytes at once; the matrix lies in the same order.
template <int H, int GROUPS, int TERMS, int CHUNKS, int TALL, bool TURNED> struct Product {
  static constexpr int TILES = (GROUPS * J + 7) / 8, WIDE = TILES * 8, PITCH = WARPS * CHUNKS * 32;
  static constexpr int ITEMS = TALL * CHUNKS, BATCH = ITEMS < 6 ? ITEMS : 6; // loads in flight
  static constexpr int CHAINS = TALL * TILES <= 4 ? 2 : 1; // sums of each element: an instruction waits for the one before
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
    float d[CHAINS][TALL][TILES][4] = {};
#pragma unroll
    for (int first = 0; first < ITEMS; first += BATCH) {
      uint4 high[BATCH], low[BATCH];
bool waits;
      do {
        unsigned empty = 0;
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
          const int item = first + b, tall = item / CHUNKS, c = item % CHUNKS;
          if (item < ITEMS) {
            high[b] = take(from + tall * 16 * PITCH + c * 32);
            low[b] = take(from + (tall * 16 + 8) * PITCH + c * 32);
          }
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
          if (first + b < ITEMS) empty |= empty_in(high[b]) | empty_in(low[b]);
        waits = __ballot_sync(0xFFFFFFFFu, empty != 0) != 0;
      } while (waits);
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int item = first + b, tall = item / CHUNKS, c = item % CHUNKS;
        if (item < ITEMS) {
          const unsigned one[4] = {high[b].x, low[b].x, high[b].y, low[b].y};
          const unsigned two[4] = {high[b].z, low[b].z, high[b].w, low[b].w};
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            multiply(d[0][tall][tile], one, right[c][0][tile][0], right[c][0][tile][1]);
            multiply(d[CHAINS - 1][tall][tile], two, right[c][1][tile][0], right[c][1][tile][1]);
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
        for (int r = 0; r < 2; ++r) {
          float one = d[0][tall][tile][r * 2], two = d[0][tall][tile][r * 2 + 1];
          if (CHAINS == 2) one += d[CHAINS - 1][tall][tile][r * 2], two += d[CHAINS - 1][tall][tile][r * 2 + 1];
          store(to + (tall * 16 + r * 8) * WIDE + tile * 8, one, two);
        }
  }

  // The element of row b and own column j of a group, from the sums of all warps, in their order.
  __device__ __forceinline__ static float sum(const float *sums, int b, int group, int j) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += sums[(warp * TALL * 16 + b) * WIDE + group * J + j];
    return total;
  }
};
