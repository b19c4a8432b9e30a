// Attention in tiles that never leave the chip: the scores of ROWS places of one tensor against OTHERS of another at a
// time (Dao, Fu, Ermon, Rudra, Re 2022; two passes backward, so that nothing is added by two blocks). Sums are f32.
//
// MODE 0: y and lse; rows are queries, which see the keys go by: the largest score so far is taken off, and what was added
// up before is scaled when a larger one comes (Milakov and Gimelshein 2018). MODE 1: dq, likewise by queries. MODE 2: dk and
// dv, by keys, which see the queries go by. Backward, the probabilities come of lse, and delta is the sum of dy * y.
//
// A warp has TALL times 16 rows. Tiles come to shared memory by asynchronous copies, STAGES of them in flight, each row's
// 16-byte chunks permuted, so that eight rows of one chunk are in eight different banks for ldmatrix. Rows that do not exist
// are zeros, and so are features from FEATURES, a multiple of 8, up to the D of a tile. The text in front says the sizes,
// and where rows lie: at `start` elements plus numbers of the two axes of the stack and of the row times strides, which are
// multiples of 8. SHARE heads of q in a row read one head of k and v; backward, a block of keys sees the queries of SHARE /
// PARTS of them, one head after the other, and writes a part of the sum. A key WINDOW or more positions away, if WINDOW
// is not 0, does not meet a query; tiles without a pair that meets are left out. With MASKED, a byte says of each query and
// key whether they meet; a query that meets no key gives 0, and its lse is minus infinity.

#include "tensor_cores.cuh"

constexpr int ROWS = WARPS * TALL * 16, THREADS = WARPS * 32, CHUNKS = D / 8;
constexpr int OWN = MODE == 0 ? 1 : 2; // tensors whose rows stay
constexpr int OWN_TILE = ROWS * D * 2, TILE = OTHERS * D * 2, STAGE = 2 * TILE + (MODE == 2 ? 8 * OTHERS : 0); // bytes
constexpr bool GUARDED = MASKED || WINDOW; // a query may meet no key of a tile
constexpr float LOG2_E = 0x1.715476p+0f, FACTOR = SCALE * LOG2_E;

__device__ __forceinline__ void copy_word(unsigned to, const void *from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0));
}

__device__ __forceinline__ unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn." MMA_TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Where chunk `chunk` of row `row` of a tile lies, in bytes.
__device__ __forceinline__ int place(int row, int chunk) {
  return (row * CHUNKS + (chunk ^ (D == 32 ? row >> 1 & 3 : row & 7))) * 16;
}

struct Layout {
  long long start, outer, inner;
  int row;
};

// Where row 0 of a head begins; `stack` counts heads of q, HEADS of which in a row have one head of the tensor.
template <int HEADS> __device__ __forceinline__ long long begins(const Layout &of, int stack) {
  return of.start + stack / INNER * of.outer + stack % INNER / HEADS * of.inner;
}

#if MASKED
#define MASK_ARGUMENT , const unsigned char *__restrict__ mask
struct Pairs {
  long long start, outer, inner, query, key;
};
struct Meet {
  bool first, second;
};

// Whether row m of `own` meets rows n and n + 1 of the others, n even; of rows that do not exist it says anything.
__device__ __forceinline__ Meet meets(const unsigned char *mask, int stack, int m, int n) {
  constexpr Pairs at = MASK;
  constexpr long long step = MODE == 2 ? at.key : at.query, across = MODE == 2 ? at.query : at.key;
  // two neighbours are one load where each pair lies at an even place
  constexpr bool PAIRED = across == 1 && OTHER_COUNT % 2 == 0 && (at.start | at.outer | at.inner | step) % 2 == 0;
  const unsigned char *const line = mask + at.start + stack / INNER * at.outer + stack % INNER * at.inner + m * step;
  if constexpr (PAIRED) {
    const uchar2 both = *reinterpret_cast<const uchar2 *>(line + min(n, OTHER_COUNT - 2));
    return {both.x != 0, both.y != 0};
  } else {
    return {line[min(n, OTHER_COUNT - 1) * across] != 0, line[min(n + 1, OTHER_COUNT - 1) * across] != 0};
  }
}
#else
#define MASK_ARGUMENT
#endif
#define INFINITE __int_as_float(0x7F800000)

// What is taken off scores: nothing where all are minus infinity.
__device__ __forceinline__ float shift_of(float top) { return GUARDED && top == -INFINITE ? 0 : top; }

// `COUNT` rows from number `first` on, of `limit`; `step` elements apart.
template <int COUNT> __device__ __forceinline__ void bring(unsigned to, const T *from, int step, int first, int limit) {
  static_assert(COUNT * CHUNKS % THREADS == 0, "");
#pragma unroll
  for (int i = 0; i < COUNT * CHUNKS / THREADS; ++i) {
    const int row = (threadIdx.x + i * THREADS) / CHUNKS, chunk = (threadIdx.x + i * THREADS) % CHUNKS;
    const bool valid = first + row < limit && (D == FEATURES || chunk * 8 < FEATURES);
    copy_async(to + place(row, chunk), valid ? from + (long long)(first + row) * step + chunk * 8 : from, valid);
  }
}

// What a warp multiplies of its own rows: kept in registers where there is room, else read again from shared memory.
struct Rows {
  unsigned tile;
  unsigned held[HELD ? TALL : 1][HELD ? D / 16 : 1][4];

  __device__ __forceinline__ void read(unsigned (&a)[4], int i, int kk) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * TALL * 16;
    load_matrices<false>(a, tile + place(first + i * 16 + lane % 16, kk * 2 + lane / 16));
  }
  __device__ __forceinline__ void hold() {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int kk = 0; kk < D / 16; ++kk) read(held[i][kk], i, kk);
    }
  }
  __device__ __forceinline__ void get(unsigned (&a)[4], int i, int kk) const {
    if constexpr (HELD) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r] = held[i][kk][r];
    } else {
      read(a, i, kk);
    }
  }
};

using Scores = float[TALL][OTHERS / 8][4]; // an element's row is 8 * (r / 2) + lane / 4, its column lane % 4 * 2 + r % 2
using Sums = float[TALL][D / 8][4];

// Products of the warp's rows with those of a tile.
__device__ __forceinline__ void products(Scores &s, const Rows &rows, unsigned tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) s[i][j][r] = 0;
#pragma unroll
  for (int kk = 0; kk < D / 16; ++kk) {
    unsigned a[TALL][4];
#pragma unroll
    for (int i = 0; i < TALL; ++i) rows.get(a[i], i, kk);
#pragma unroll
    for (int j = 0; j < OTHERS / 16; ++j) {
      unsigned b[4];
      load_matrices<false>(b, tile + place(j * 16 + lane % 8 + lane / 16 * 8, kk * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < TALL; ++i) {
        multiply(s[i][2 * j], a[i], b[0], b[1]);
        multiply(s[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// sums += weights, rounded, times the rows of a tile.
__device__ __forceinline__ void add(Sums &sums, const Scores &weights, unsigned tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int kk = 0; kk < OTHERS / 16; ++kk) {
    unsigned a[TALL][4];
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float(&from)[4] = weights[i][2 * kk + r / 2];
        a[i][r] = pair(from[r % 2 * 2], from[r % 2 * 2 + 1]);
      }
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      unsigned b[4];
      load_matrices<true>(b, tile + place(kk * 16 + lane % 16, j * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < TALL; ++i) {
        multiply(sums[i][2 * j], a[i], b[0], b[1]);
        multiply(sums[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// The warp's rows, times a factor each, by way of its part of a tile that nobody reads any more: 16 bytes a thread.
__device__ __forceinline__ void write(T *to, int step, const Sums &sums, const float (&factor)[TALL][2], unsigned char *tile, int first,
                                      int limit) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * TALL * 16;
  __syncwarp(); // the warp's other lanes have read their rows there
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<unsigned *>(tile + place(row + i * 16 + lane / 4 + h * 8, j) + lane % 4 * 4) =
            pair(sums[i][j][2 * h] * factor[i][h], sums[i][j][2 * h + 1] * factor[i][h]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < TALL * 16 * CHUNKS / 32; ++i) {
    const int own = row + (lane + i * 32) / CHUNKS, chunk = (lane + i * 32) % CHUNKS;
    if (first + own < limit && (D == FEATURES || chunk * 8 < FEATURES))
      *reinterpret_cast<uint4 *>(to + (long long)(first + own) * step + chunk * 8) = *reinterpret_cast<const uint4 *>(tile + place(own, chunk));
  }
}

#if MODE == 0
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v MASK_ARGUMENT, T *__restrict__ y,
           float *__restrict__ lse) {
  const T *const own[OWN] = {q}, *const other[2] = {k, v};
  constexpr Layout own_at[OWN] = {Q}, other_at[2] = {K, V};
#elif MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const float *__restrict__ lse,
           const float *__restrict__ delta, const T *__restrict__ dy MASK_ARGUMENT, T *__restrict__ dq) {
  const T *const own[OWN] = {q, dy}, *const other[2] = {k, v};
  constexpr Layout own_at[OWN] = {Q, DY}, other_at[2] = {K, V};
#else
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const float *__restrict__ lse,
           const float *__restrict__ delta, const T *__restrict__ dy MASK_ARGUMENT, T *__restrict__ dk,
           T *__restrict__ dv) {
  const T *const own[OWN] = {k, v}, *const other[2] = {q, dy};
  constexpr Layout own_at[OWN] = {K, V}, other_at[2] = {Q, DY};
#endif
  wait_for_those_before();
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned own_tiles = shared_address(memory), stages = own_tiles + OWN * OWN_TILE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int BLOCKS = (OWN_COUNT + ROWS - 1) / ROWS, ALL = (OTHER_COUNT + OTHERS - 1) / OTHERS;
  constexpr int OWN_HEADS = MODE == 2 ? SHARE / PARTS : 1, OTHER_HEADS = MODE == 2 ? 1 : SHARE; // of q, for one of the tensors
  const int first_head = blockIdx.x / BLOCKS * OWN_HEADS;
  // the blocks with most to do first
  const int block = CAUSAL && MODE != 2 ? BLOCKS - 1 - blockIdx.x % BLOCKS : blockIdx.x % BLOCKS;
  const int first = block * ROWS;
  const int begin = CAUSAL && MODE == 2 ? first / OTHERS : WINDOW ? max(0, first - WINDOW + 1) / OTHERS : 0;
  const int last = first + ROWS - 1 + (CAUSAL && MODE != 2 ? 0 : WINDOW - 1); // the last place that may meet one of the rows
  const int end = WINDOW || (CAUSAL && MODE != 2) ? min(ALL, last / OTHERS + 1) : ALL;
  const int span = end - begin, steps = span * OWN_HEADS; // tiles of all heads, one head after the other
  auto head_of = [&](int step) { return OWN_HEADS == 1 ? first_head : first_head + step / span; };
  auto tile_of = [&](int step) { return OWN_HEADS == 1 ? begin + step : begin + step % span; };

  auto bring_stage = [&](int step) {
    const unsigned to = stages + step % STAGES * STAGE;
    const int stack = head_of(step), tile = tile_of(step);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      bring<OTHERS>(to + i * TILE, other[i] + begins<OTHER_HEADS>(other_at[i], stack), other_at[i].row, tile * OTHERS, OTHER_COUNT);
#if MODE == 2
    for (int i = threadIdx.x; i < 2 * OTHERS; i += THREADS) {
      const int at = tile * OTHERS + i % OTHERS;
      const float *from = (i < OTHERS ? lse : delta) + (long long)stack * OTHER_COUNT;
      copy_word(to + 2 * TILE + i * 4, from + (at < OTHER_COUNT ? at : 0), at < OTHER_COUNT);
    }
#endif
  };

#pragma unroll
  for (int i = 0; i < OWN; ++i)
    bring<ROWS>(own_tiles + i * OWN_TILE, own[i] + begins<MODE == 2 ? SHARE : 1>(own_at[i], first_head), own_at[i].row, first, OWN_COUNT);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) bring_stage(s);
    asm volatile("cp.async.commit_group;");
  }

  Rows rows[OWN];
#pragma unroll
  for (int i = 0; i < OWN; ++i) rows[i].tile = own_tiles + i * OWN_TILE;
  Sums sums[MODE == 2 ? 2 : 1] = {};
  float top[TALL][2], total[TALL][2];
  const int row = first + warp * TALL * 16 + lane / 4; // of element 0
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#if MODE == 0
      top[i][h] = -INFINITE, total[i][h] = 0;
#elif MODE == 1
      const int at = row + i * 16 + h * 8;
      const bool there = at < OWN_COUNT;
      top[i][h] = there ? shift_of(lse[(long long)first_head * OWN_COUNT + at]) * LOG2_E : 0;
      total[i][h] = there ? delta[(long long)first_head * OWN_COUNT + at] : 0;
#endif
    }

  for (int step = 0; step < steps; ++step) {
    const int number = step % STAGES, later = step + STAGES - 1, tile = tile_of(step);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads(); // the tile is there for all, and nobody reads the one that comes next
    if (step == 0)
#pragma unroll
      for (int i = 0; i < OWN; ++i) rows[i].hold();
    if (later < steps) bring_stage(later);
    asm volatile("cp.async.commit_group;");
    const unsigned first_tile = stages + number * STAGE, second_tile = first_tile + TILE;
    const int column = tile * OTHERS + lane % 4 * 2;

    Scores s;
    products(s, rows[0], first_tile);
    const bool over = (tile + 1) * OTHERS > OTHER_COUNT;
    const bool crosses = CAUSAL && (MODE == 2 ? tile * OTHERS < first + ROWS : (tile + 1) * OTHERS > first);
    const bool beyond = WINDOW && (first + ROWS - 1 - tile * OTHERS >= WINDOW || (tile + 1) * OTHERS - 1 - first >= WINDOW);
    if (over || crosses || beyond) {
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const int m = row + i * 16 + r / 2 * 8, n = column + j * 8 + r % 2;
            const bool late = CAUSAL && (MODE == 2 ? m > n : n > m), far = WINDOW && (m - n >= WINDOW || n - m >= WINDOW);
            if (n >= OTHER_COUNT || late || far) s[i][j][r] = -INFINITE;
          }
    }
#if MASKED
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int m = min(row + i * 16 + h * 8, OWN_COUNT - 1), n = column + j * 8;
          const Meet meet = meets(mask, head_of(step), m, n);
          if (!meet.first) s[i][j][2 * h] = -INFINITE;
          if (!meet.second) s[i][j][2 * h + 1] = -INFINITE;
        }
#endif
#if MODE == 0
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = top[i][h];
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j) most = fmaxf(most, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        const float shift = shift_of(most) * FACTOR, kept = power_of_2(fused(top[i][h], FACTOR, -shift));
        top[i][h] = most;
        float part = 0;
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 2 * h; r < 2 * h + 2; ++r) part += s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift));
        total[i][h] = fused(total[i][h], kept, part);
#pragma unroll
        for (int j = 0; j < D / 8; ++j) sums[0][i][j][2 * h] *= kept, sums[0][i][j][2 * h + 1] *= kept;
      }
    add(sums[0], s, second_tile);
#else
    Scores slope;
    products(slope, rows[1], second_tile);
    const float *beside = reinterpret_cast<const float *>(memory + OWN * OWN_TILE + number * STAGE + 2 * TILE) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float shift = MODE == 1 ? top[i][r / 2] : shift_of(beside[j * 8 + r % 2]) * LOG2_E;
          const float shared = MODE == 1 ? total[i][r / 2] : beside[OTHERS + j * 8 + r % 2];
          s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift));
          slope[i][j][r] = s[i][j][r] * (slope[i][j][r] - shared);
        }
    add(sums[0], slope, first_tile);
#if MODE == 2
    add(sums[1], s, second_tile);
#endif
#endif
  }

  asm volatile("cp.async.wait_group 0;");
  float factor[TALL][2];
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#if MODE == 0
      float whole = total[i][h] + __shfl_xor_sync(0xFFFFFFFFu, total[i][h], 1);
      whole += __shfl_xor_sync(0xFFFFFFFFu, whole, 2);
      const int at = row + i * 16 + h * 8;
      if (lane % 4 == 0 && at < OWN_COUNT) lse[(long long)first_head * OWN_COUNT + at] = fused(top[i][h], SCALE, logf(whole));
      factor[i][h] = GUARDED && whole == 0 ? 0 : 1 / whole;
#else
      factor[i][h] = SCALE;
#endif
    }
#if MODE == 0
  constexpr Layout to = Y;
  write(y + begins<1>(to, first_head), to.row, sums[0], factor, memory, first, OWN_COUNT);
#elif MODE == 1
  constexpr Layout to = DQ;
  write(dq + begins<1>(to, first_head), to.row, sums[0], factor, memory, first, OWN_COUNT);
#else
  constexpr Layout to[2] = {DK, DV};
  write(dk + begins<OWN_HEADS>(to[0], first_head), to[0].row, sums[0], factor, memory, first, OWN_COUNT);
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[i][h] = 1;
  write(dv + begins<OWN_HEADS>(to[1], first_head), to[1].row, sums[1], factor, memory + OWN_TILE, first, OWN_COUNT);
#endif
}
