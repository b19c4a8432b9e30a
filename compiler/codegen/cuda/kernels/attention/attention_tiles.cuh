// Tiles of attention in shared memory and registers: their sizes, how rows come to them, the products of a warp's rows,
// and how results leave. For attention.cu, whose first comment says the terms.
//
// T is a 16-bit float, or float: then each thread rounds what it has copied to TF32, in place. Of either, the 32 bytes of two
// chunks are as deep as one product of tensor cores.

#include "tensor_cores.cuh"

constexpr int ROWS = WARPS * TALL * 16, THREADS = WARPS * 32;
constexpr int EACH = 16 / (int)sizeof(T), CHUNKS = D / EACH, DEEP = 2 * EACH; // elements of a chunk and of a product
constexpr int PIECES = 16 / PIECE, FITTING = PIECE / (int)sizeof(T); // of a chunk; elements of a piece
constexpr bool BY_KEYS = MODE >= 2;
constexpr int OWN = MODE == 0 || MODE == 4 ? 1 : 2; // tensors whose rows stay
constexpr int OWN_TILE = ROWS * CHUNKS * 16, TILE = OTHERS * CHUNKS * 16, SUMS_TILE = BY_KEYS ? 8 * OTHERS : 0; // bytes
constexpr bool GUARDED = MASKED || BIASED || WINDOW; // a query may meet no key of a tile
constexpr float LOG2_E = 0x1.715476p+0f, FACTOR = SCALE * LOG2_E;

__device__ __forceinline__ void copy_word(unsigned to, const void *from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0));
}

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int BYTES> struct Bytes;
template <> struct Bytes<16> { using Type = uint4; };
template <> struct Bytes<8> { using Type = uint2; };
template <> struct Bytes<4> { using Type = unsigned; };
template <> struct Bytes<2> { using Type = unsigned short; };
using Piece = Bytes<PIECE>::Type;

// Where chunk `chunk` of row `row` of a tile lies, in bytes.
__device__ __forceinline__ int place(int row, int chunk) {
  return (row * CHUNKS + (chunk ^ (CHUNKS == 4 ? row >> 1 & 3 : row & 7))) * 16;
}

struct Layout {
  long long start, outer, inner;
  int row;
};

// Where row 0 of a head begins; `stack` counts heads of q, HEADS of which in a row have one head of the tensor.
template <int HEADS> __device__ __forceinline__ long long begins(const Layout &of, int stack) {
  return of.start + stack / INNER * of.outer + stack % INNER / HEADS * of.inner;
}

#include "attention_pairs.cuh"

constexpr int STAGE = 2 * TILE + SUMS_TILE + MASK_TILE; // bytes
#define INFINITE __int_as_float(0x7F800000)

// What is taken off scores: nothing where all are minus infinity.
__device__ __forceinline__ float shift_of(float top) { return GUARDED && top == -INFINITE ? 0 : top; }

// PIECE bytes. Asynchronous copies have at least 4: of fewer, the thread itself stores them, before the barrier that all wait
// at for the tile.
__device__ __forceinline__ void copy_piece(unsigned to, const T *from, bool valid) {
  if constexpr (PIECE == 16)
    copy_async(to, from, valid);
  else if constexpr (PIECE >= 4)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(PIECE < 4 ? 4 : PIECE), "r"(valid ? PIECE : 0));
  else
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(valid ? *reinterpret_cast<const unsigned short *>(from) : (unsigned short)0) : "memory");
}

// `COUNT` rows from number `first` on, of `limit`; `step` elements apart.
template <int COUNT> __device__ __forceinline__ void bring(unsigned to, const T *from, int step, int first, int limit) {
  static_assert(COUNT * CHUNKS % THREADS == 0, "");
#pragma unroll
  for (int i = 0; i < COUNT * CHUNKS / THREADS; ++i) {
    const int row = (threadIdx.x + i * THREADS) / CHUNKS, chunk = (threadIdx.x + i * THREADS) % CHUNKS;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = chunk * EACH + p * FITTING;
      const bool valid = first + row < limit && (D == FEATURES || at < FEATURES);
      copy_piece(to + place(row, chunk) + p * PIECE, valid ? from + (long long)(first + row) * step + at : from, valid);
    }
  }
}

// The chunks of ``COUNT`` rows that this thread has copied, rounded to factors of products.
template <int COUNT> __device__ __forceinline__ void round_chunks(unsigned tile) {
#ifndef MMA_TYPE
#pragma unroll
  for (int i = 0; i < COUNT * CHUNKS / THREADS; ++i) {
    const unsigned at = tile + place((threadIdx.x + i * THREADS) / CHUNKS, (threadIdx.x + i * THREADS) % CHUNKS);
    unsigned x[4];
    load_words(x, at);
#pragma unroll
    for (int c = 0; c < 4; ++c) x[c] = tf32(__uint_as_float(x[c]));
    store_words(at, x);
  }
#endif
}

// What a warp multiplies of its own rows: kept in registers where there is room, else read again from shared memory.
struct Rows {
  unsigned tile;
  unsigned held[HELD ? TALL : 1][HELD ? D / DEEP : 1][4];

  __device__ __forceinline__ void read(unsigned (&a)[4], int i, int kk) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * TALL * 16;
    load_matrices<false>(a, tile + place(first + i * 16 + lane % 16, kk * 2 + lane / 16));
  }
  __device__ __forceinline__ void hold() {
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int kk = 0; kk < D / DEEP; ++kk) read(held[i][kk], i, kk);
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
using Sums = float[TALL][D / 8][4]; // the same, of columns in the order in which ``add`` reads them

#if BIASED
// Scores, which are not scaled yet, with the bias of own rows from m on and others from n on. KEYS: own rows are keys.
template <bool KEYS> __device__ __forceinline__ void add_bias(Scores &s, const T *of, int m, int n, int rows, int others) {
  constexpr long long step = KEYS ? BIAS_AT.key : BIAS_AT.query, across = KEYS ? BIAS_AT.query : BIAS_AT.key;
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const T *const line = of + min(m + i * 16 + h * 8, rows - 1) * step;
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float &score = s[i][j][2 * h + r];
          score = fused(wide(line[min(n + j * 8 + r, others - 1) * across]), 1 / SCALE, score);
        }
    }
}
#endif

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
  for (int kk = 0; kk < D / DEEP; ++kk) {
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

#ifdef MMA_TYPE
__device__ __forceinline__ unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn." MMA_TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
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

// A row of sums, times a factor, to a row of a tile.
__device__ __forceinline__ void put(unsigned char *tile, int row, const float (&sums)[D / 8][4], int half, float factor) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < D / 8; ++j)
    *reinterpret_cast<unsigned *>(tile + place(row, j) + lane % 4 * 4) = pair(sums[j][2 * half] * factor, sums[j][2 * half + 1] * factor);
}
#else
// The same in TF32. ldmatrix does not transpose 32-bit elements, so the order of a product's eight rows and columns is
// another one: a thread's two weights are of neighbouring rows 2t and 2t + 1, as scores lie, and one chunk of a row has
// its factors of four products. So column n of product c, of every four with 32 columns, is column 4n + c of these.
__device__ __forceinline__ void add(Sums &sums, const Scores &weights, unsigned tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int kk = 0; kk < OTHERS / 8; ++kk) {
    unsigned a[TALL][4];
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) a[i][r] = tf32(weights[i][kk][r % 2 * 2 + r / 2]);
#pragma unroll
    for (int j = 0; j < D / 32; ++j) {
      unsigned b[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        load_words(b[h], tile + place(kk * 8 + lane % 4 * 2 + h, j * 8 + lane / 4));
#pragma unroll
      for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int i = 0; i < TALL; ++i) multiply(sums[i][4 * j + c], a[i], b[0][c], b[1][c]);
    }
  }
}

__device__ __forceinline__ void put(unsigned char *tile, int row, const float (&sums)[D / 8][4], int half, float factor) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < D / 32; ++j)
#pragma unroll
    for (int r = 2 * half; r < 2 * half + 2; ++r) {
      auto of = [&](int c) { return sums[4 * j + c][r] * factor; };
      *reinterpret_cast<float4 *>(tile + place(row, j * 8 + lane % 4 * 2 + r % 2)) = make_float4(of(0), of(1), of(2), of(3));
    }
}
#endif

// The warp's rows, times a factor each, by way of its part of a tile that nobody reads any more: a chunk a thread, in pieces.
__device__ __forceinline__ void write(T *to, int step, const Sums &sums, const float (&factor)[TALL][2], unsigned char *tile, int first,
                                      int limit) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * TALL * 16;
  __syncwarp(); // the warp's other lanes have read their rows there
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) put(tile, row + i * 16 + lane / 4 + h * 8, sums[i], h, factor[i][h]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < TALL * 16 * CHUNKS / 32; ++i) {
    const int own = row + (lane + i * 32) / CHUNKS, chunk = (lane + i * 32) % CHUNKS;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = chunk * EACH + p * FITTING;
      if (first + own < limit && (D == FEATURES || at < FEATURES))
        *reinterpret_cast<Piece *>(to + (long long)(first + own) * step + at) = *reinterpret_cast<const Piece *>(tile + place(own, chunk) + p * PIECE);
    }
  }
}
