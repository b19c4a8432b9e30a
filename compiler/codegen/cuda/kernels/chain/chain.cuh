// What a chain is made of: stages that follow one another in one kernel, whose blocks are all on the device at once. Between
// two stages blocks wait for one another. The text in front says GRID and THREADS; that after it has a namespace for each kind
// of stage, with its constants, and for each a function that is called for every stage of this kind.
#include "barrier.cuh"
#include "few_rows.cuh"

constexpr int WARPS = THREADS / 32;

extern __shared__ __align__(128) unsigned char memory[];

// Where a stage waits and what it brings to the L2 cache meanwhile, for the stage after it: `lines` times 128 bytes.
struct Turn {
  unsigned *arrived;
  unsigned target; // arrivals of all stages before
  const void *ahead;
  int lines;
  __device__ __forceinline__ void bring() const {
    for (int line = blockIdx.x * THREADS + threadIdx.x; line < lines; line += GRID * THREADS)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char *>(ahead) + line * 128ll));
  }
  __device__ __forceinline__ void wait() const {
    if (!target) return;
    Barrier barrier{arrived, target};
    barrier.wait();
  }
  __device__ __forceinline__ void arrive() const {
    Barrier barrier{arrived, target};
    barrier.arrive();
  }
};

// The sums of all threads of the block of COUNT numbers each, in every thread: of a warp pairwise, then of warps in order.
struct Sum {
  __device__ __forceinline__ static float none() { return 0; }
  __device__ __forceinline__ static float of(float x, float y) { return x + y; }
};
struct Largest {
  __device__ __forceinline__ static float none() { return __int_as_float(0xFF800000); }
  __device__ __forceinline__ static float of(float x, float y) { return greater(x, y); }
};
struct Least {
  __device__ __forceinline__ static float none() { return __int_as_float(0x7F800000); }
  __device__ __forceinline__ static float of(float x, float y) { return lesser(x, y); }
};
template <class How, int COUNT> __device__ __forceinline__ void combine(float (&x)[COUNT], float (*held)[WARPS]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int half = 16; half; half /= 2) x[i] = How::of(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], half));
    if (threadIdx.x % 32 == 0) held[i][threadIdx.x / 32] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    x[i] = threadIdx.x % 32 < WARPS ? held[i][threadIdx.x % 32] : How::none();
#pragma unroll
    for (int half = 16; half; half /= 2) x[i] = How::of(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], half));
  }
  __syncthreads();
}

// The left factor of a product as it lies in memory.
template <class T> struct Rows {
  const T *x;
  __device__ __forceinline__ void early() {}
  __device__ __forceinline__ const T *get() { return x; }
};

// c[m, n] = sum over k of a[m, k] * b[n, k] for ROWS rows of a. A team of DOWN warps has COLS neighbouring rows of b; teams
// that follow one another are in different blocks. A thread adds the products of every (32 * DOWN)-th 16 bytes in order, AHEAD
// of them under way, the first before other blocks have made a; then threads' sums are added pairwise, and the warps' in
// order. S: the constants; Left: what gives a; Last: what becomes of a sum.
template <class S, class Left, class Last>
__device__ __forceinline__ void product(const Turn &turn, Left &left, Last &last, const typename S::T *b, typename S::C *c) {
  using T = typename S::T;
  constexpr int ROWS = S::ROWS, N = S::N, K = S::K, COLS = S::COLS, DOWN = S::DOWN, AHEAD = S::AHEAD;
  constexpr int EACH = 16 / sizeof(T), STEP = 32 * DOWN * EACH, TURNS = (K + STEP - 1) / STEP;
  constexpr int TEAMS = GRID * (WARPS / DOWN), SUMS = ROWS * COLS, ROUNDS = (N + TEAMS * COLS - 1) / (TEAMS * COLS);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % DOWN, begin = (part * 32 + lane) * EACH;
  const int row = lane / COLS;
  Lanes<T, EACH> weights[AHEAD][COLS];
  const T *a = nullptr;
#pragma unroll 1
  for (int round = 0; round < ROUNDS; ++round) {
    const int first = (round * TEAMS + warp / DOWN * GRID + blockIdx.x) * COLS, column = first + lane % COLS;
    const bool own = part == 0 && lane < SUMS && column < N;
    float sums[ROWS][COLS] = {};
#pragma unroll 1
    for (int step = 0; step < TURNS; step += AHEAD) {
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
#pragma unroll
        for (int j = 0; j < COLS; ++j) { // of what does not exist nothing
          const int k = (step + i) * STEP + begin;
          weights[i][j] = {};
          if (k < K && first + j < N) weights[i][j] = Lanes<T, EACH>::read(b + (long long)(first + j) * K + k);
        }
      if (step == 0) {
        if (own) last.early(row, column);
        if (round == 0) {
          left.early();
          turn.bring();
          turn.wait();
          a = left.get();
        }
        if (own) last.late(row, column);
      }
      add_products<K, STEP>(sums, a, weights, step, begin);
    }
    float whole = sum_of_warp(sums, lane); // of the thread's own result
    if constexpr (DOWN > 1) {
      __shared__ float held[2][WARPS][SUMS]; // others may still read that of the round before
      float (&mine)[WARPS][SUMS] = held[round % 2];
      if (lane < SUMS) mine[warp][lane] = whole;
      __syncthreads();
      if (own)
#pragma unroll
        for (int other = 1; other < DOWN; ++other) whole += mine[warp + other][lane];
    }
    if (own) store(c + (row * N + column), last.finished(whole));
  }
  turn.arrive();
}
