// Convolutions between FEW channels and many. A thread computes with PIXELS neighbours along the last spatial axis of the side
// OWN, with the places of the side OTHER that their windows read, and with LANES adjacent ones of the many channels.
// ROWS x WIDTH threads of a block: rows are pieces of PIXELS neighbours, columns are groups of LANES channels.
#include "windows.cuh"

constexpr int TAP_LINES = TAPS[0] * TAPS[1], ALL_TAPS = TAP_LINES * TAPS[2];
// Lines of taps outside of the image are read as zeros, without a branch, so that lines are read ahead. Between the places that a
// stride leaves out, they are skipped.
constexpr bool SKIPS = BACK && STRIDE[0] * STRIDE[1] > 1;

// A thread's place in the block: with channels last, columns are neighbours, else rows.
__device__ __forceinline__ int row_of(int thread) { return LAST ? thread / WIDTH : thread % ROWS; }
__device__ __forceinline__ int column_of(int thread) { return LAST ? thread % WIDTH : thread / ROWS; }

struct Piece {
  int plane, at0, at1, at2, base;
};

// The first of the piece's neighbours, and the base of what they read.
__device__ __forceinline__ Piece piece_of(const Numbers &s, int item) {
  const int line = quotient(item, s.CHUNKS_magic, s.CHUNKS_shift), sheet = quotient(line, s.OWN1_magic, s.OWN1_shift);
  const int plane = quotient(sheet, s.OWN0_magic, s.OWN0_shift), at2 = (item - line * s.CHUNKS) * PIXELS;
  return {plane, sheet - plane * s.OWN0, line - sheet * s.OWN1, at2, BACK ? at2 / STRIDE[2] : at2 * STRIDE[2]};
}

// The address of the first place of a line: ``channel`` of ``channels``, in a plane of sizes 0, 1 and 2.
__device__ __forceinline__ INDEX line_at(int plane, int channel, int channels, int at0, int at1, int size0, int size1, int size2) {
  if (LAST) return (((INDEX)plane * size0 + at0) * size1 + at1) * size2 * channels + channel;
  return ((((INDEX)plane * channels + channel) * size0 + at0) * size1 + at1) * size2;
}

// COUNT places of N adjacent channels, from place ``from`` of a line of ``size``; zeros outside. ``step``: the distance of
// places with channels last, else of channels. With channels first, from - SHIFT is a multiple of VECTOR, and so is the size.
template <int COUNT, int N, int VECTOR, int SHIFT>
__device__ __forceinline__ void read_line(SUM (&to)[COUNT][N], const X *line, int from, int size, INDEX step) {
#if LAST
  constexpr int V = N % 4 == 0 && sizeof(X) <= 4 ? 4 : N % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int n = 0; n < COUNT; ++n) {
    const bool inside = (unsigned)(from + n) < (unsigned)size;
#pragma unroll
    for (int k = 0; k < N; k += V) {
      Lanes<X, V> zero = {};
      const Lanes<X, V> seen = inside ? Lanes<X, V>::read(line + (from + n) * step + k) : zero;
#pragma unroll
      for (int l = 0; l < V; ++l) to[n][k + l] = wide(seen.x[l]);
    }
  }
#else
#pragma unroll
  for (int l = 0; l < N; ++l)
#pragma unroll
    for (int k = -SHIFT; k < COUNT; k += VECTOR) {
      Lanes<X, VECTOR> zero = {};
      const bool inside = (unsigned)(from + k) < (unsigned)size;
      const Lanes<X, VECTOR> seen = inside ? Lanes<X, VECTOR>::read(line + l * step + from + k) : zero;
#pragma unroll
      for (int n = 0; n < VECTOR; ++n)
        if (k + n >= 0 && k + n < COUNT) to[k + n][l] = wide(seen.x[n]);
    }
#endif
}

// The weights of channels from ``first`` on, of taps and few channels next to each other: weights[tap * FEW + few][channel].
template <int KEPT>
__device__ __forceinline__ void keep_weights(SUM (*weights)[KEPT], const X *w, const Numbers &s, int first) {
#pragma unroll 8 // so many reads are under way
  for (int n = threadIdx.x; n < ALL_TAPS * FEW * KEPT; n += blockDim.x) {
    const int line = n / KEPT, channel = first + n % KEPT;
    const INDEX from = (INDEX)(line / FEW) * s.W_TAP + (INDEX)(line % FEW) * s.W_FEW + (INDEX)channel * s.W_MANY;
    weights[line][n % KEPT] = channel < s.CHANNELS ? wide(w[from]) : SUM(0);
  }
}

// Adds N sums of threads whose numbers differ in the bits from FROM down to TO. Each step halves how many a thread goes on with, as
// long as it can: ``held`` of them are left, the first of which is sum ``at``. Threads with a bit of SAME have the same ones.
template <int N, int FROM, int TO, bool MORE = (FROM >= TO)> struct Together {
  static constexpr bool HALVES = N % 2 == 0;
  using Next = Together<HALVES ? N / 2 : N, FROM / 2, TO>;
  static constexpr int HELD = Next::HELD, SAME = Next::SAME | (HALVES ? 0 : FROM);
  __device__ __forceinline__ static int add(SUM *sums, int at) {
    if constexpr (HALVES) {
      const bool upper = threadIdx.x & FROM;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        const SUM kept = upper ? sums[i + N / 2] : sums[i], given = upper ? sums[i] : sums[i + N / 2];
        sums[i] = kept + __shfl_xor_sync(0xffffffff, given, FROM);
      }
      return Next::add(sums, upper ? at + N / 2 : at);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += __shfl_xor_sync(0xffffffff, sums[i], FROM);
      return Next::add(sums, at);
    }
  }
};
template <int N, int FROM, int TO> struct Together<N, FROM, TO, false> {
  static constexpr int HELD = N, SAME = 0;
  __device__ __forceinline__ static int add(SUM *, int at) { return at; }
};
