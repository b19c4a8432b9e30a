// Products of f32 of a loop's resident kernel, whose matrices stay in shared memory. TF32: factors are rounded to the 10 bits
// of TF32.
#include "resident.cuh"

// A word: 3 elements and the step.
__device__ __forceinline__ unsigned label_of(int step) { return (unsigned)(step + 1); }
__device__ __forceinline__ bool is_there(const uint4 &word, unsigned label) { return word.w == label; }

__device__ __forceinline__ unsigned factor(float x) { return TF32 ? tf32(x) : __float_as_uint(x); }

// Puts the elements of 4 threads, of which the last has none, into their word. All threads of a warp call it.
template <class T> __device__ __forceinline__ void put(unsigned char *word, bool inside, bool row, float x, int step) {
  const unsigned bits = inside ? factor(x) : 0, second = __shfl_xor_sync(0xFFFFFFFFu, bits, 1);
  const unsigned third = __shfl_xor_sync(0xFFFFFFFFu, bits, 2);
  if (row && threadIdx.x % 4 == 0) write_word(word, bits, second, third, label_of(step));
}

// The product of a left factor of LEFT groups, which all blocks made, and a matrix, of which this block keeps GROUPS * J
// columns: J neighbours in each group of H. A warp sums CHUNKS * DEEP words of a row, and leaves its sums in shared memory:
// for each warp WIDE columns of TALL rows. Of a chunk each lane takes one word, of BATCH rows at once, and multiplies it by
// COLS columns; COLUMN_LANES lanes take the same words and multiply them by different columns. So a lane has its own part of
// the matrix, which it alone writes and reads: of each chunk 3 * COLS elements, four at a time.
template <int GROUPS, int LEFT, int CHUNKS, int COLUMN_LANES, int BATCH, bool TURNED> struct Product {
  static constexpr int DEEP = 32 / COLUMN_LANES, COLS = (GROUPS * J + COLUMN_LANES - 1) / COLUMN_LANES;
  static constexpr int COUNT = LEFT * BLOCKS * WORDS; // words of a row
  static constexpr int QUADS = (WORD * COLS + 3) / 4; // of a lane's part of the matrix, in each chunk
  static constexpr int TURNS = (ROWS + BATCH - 1) / BATCH, TALL = TURNS * BATCH, ITEMS = TURNS * CHUNKS;
  static constexpr int SUMS = (BATCH * COLS + DEEP - 1) / DEEP * DEEP, OWN = SUMS / DEEP;
  static constexpr int WIDE = COLS * COLUMN_LANES + 1;
  static constexpr int RING = 3; // items whose words are on their way or used
  float *right;

  __device__ __forceinline__ void load(const float *__restrict__ matrix, float *to) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, deep = lane % DEEP, column_lane = lane / DEEP;
    right = to + (warp * CHUNKS * QUADS * 32 + lane) * 4;
#pragma unroll 1
    for (int i = 0; i < CHUNKS * QUADS * 4; ++i) {
      const int c = i / (QUADS * 4), part = i % (QUADS * 4), own = column_lane * COLS + part % COLS, group = own / J;
      const int word = (warp * CHUNKS + c) * DEEP + deep, element = word % WORDS * WORD + part / COLS;
      const int from = word / WORDS % BLOCKS * J + element, j = blockIdx.x * J + own % J;
      const bool there = part < WORD * COLS && element < J && from < H && word < COUNT && group < GROUPS && j < H;
      const long long column = group * H + j, k = word / WORDS / BLOCKS * H + from;
      const float x = there ? matrix[TURNED ? column * (LEFT * H) + k : k * (GROUPS * H) + column] : 0.0f;
      right[i / 4 * 128 + i % 4] = __uint_as_float(factor(x));
    }
  }

  // Of an item, one chunk of BATCH rows: the words, which may not be there yet.
  __device__ __forceinline__ static bool is_needed(int item, int b, int word) {
    return item / CHUNKS * BATCH + b < ROWS && word < COUNT;
  }
  __device__ __forceinline__ static void ask(uint4 (&words)[BATCH], const uint4 *x, int item, int first, unsigned label) {
    const int word = first + item % CHUNKS * DEEP;
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      words[b] = no_word(false, label);
      if (is_needed(item, b, word)) words[b] = take(x + (item / CHUNKS * BATCH + b) * COUNT + word);
    }
  }
  __device__ __forceinline__ static void wait(uint4 (&words)[BATCH], const uint4 *x, int item, int first, unsigned label) {
    const int word = first + item % CHUNKS * DEEP;
    bool waits;
    do {
      bool all = true;
#pragma unroll
      for (int b = 0; b < BATCH; ++b) all = all && is_there(words[b], label);
      waits = __ballot_sync(0xFFFFFFFFu, !all) != 0;
      if (waits)
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
          if (!is_there(words[b], label)) words[b] = take(x + (item / CHUNKS * BATCH + b) * COUNT + word);
    } while (waits);
  }

  __device__ __forceinline__ void add(float (&d)[SUMS], const uint4 (&words)[BATCH], int chunk) const {
    float matrix[QUADS * 4];
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
      const float4 four = *reinterpret_cast<const float4 *>(right + (chunk * QUADS + quad) * 128);
      matrix[quad * 4] = four.x, matrix[quad * 4 + 1] = four.y, matrix[quad * 4 + 2] = four.z, matrix[quad * 4 + 3] = four.w;
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const unsigned left[WORD] = {words[b].x, words[b].y, words[b].z};
#pragma unroll
      for (int e = 0; e < WORD; ++e)
#pragma unroll
        for (int col = 0; col < COLS; ++col)
          d[b * COLS + col] = fmaf(__uint_as_float(left[e]), matrix[e * COLS + col], d[b * COLS + col]);
    }
  }

  // Adds the lanes' sums of BATCH rows, and writes them. In each turn a lane gives half of its sums to another for the other
  // half, so that it has OWN sums in the end.
  template <int SPAN> __device__ __forceinline__ static void halve(float (&d)[SUMS], int deep) {
    if constexpr (SPAN > 0) {
      const bool upper = deep & SPAN;
#pragma unroll
      for (int i = 0; i < OWN * SPAN; ++i) {
        const float given = upper ? d[i] : d[i + OWN * SPAN], kept = upper ? d[i + OWN * SPAN] : d[i];
        d[i] = kept + __shfl_xor_sync(0xFFFFFFFFu, given, SPAN);
      }
      halve<SPAN / 2>(d, deep);
    }
  }
  __device__ __forceinline__ static void finish(float (&d)[SUMS], float *sums, int first_row) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, deep = lane % DEEP, column_lane = lane / DEEP;
    halve<DEEP / 2>(d, deep);
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      const int at = deep * OWN + i;
      if (at < BATCH * COLS) sums[(warp * TALL + first_row + at / COLS) * WIDE + column_lane * COLS + at % COLS] = d[i];
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) d[i] = 0;
  }

  __device__ __forceinline__ void multiply_by(const uint4 *x, float *sums, int step) const {
    const int first = threadIdx.x / 32 * CHUNKS * DEEP + threadIdx.x % DEEP;
    const unsigned label = label_of(step);
    float d[SUMS] = {};
    uint4 words[RING][BATCH];
#pragma unroll
    for (int item = 0; item < RING - 1; ++item)
      if (item < ITEMS) ask(words[item], x, item, first, label);
#pragma unroll 1
    for (int start = 0; start < ITEMS; start += RING)
#pragma unroll
      for (int r = 0; r < RING; ++r) {
        const int item = start + r;
        if (item < ITEMS) {
          if (item + RING - 1 < ITEMS) ask(words[(r + RING - 1) % RING], x, item + RING - 1, first, label);
          wait(words[r], x, item, first, label);
          add(d, words[r], item % CHUNKS);
          if (item % CHUNKS == CHUNKS - 1) finish(d, sums, item / CHUNKS * BATCH);
        }
      }
  }

  // The element of row b and own column j of a group, from the sums of all warps, in their order.
  __device__ __forceinline__ static float sum(const float *sums, int b, int group, int j) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) total += sums[(warp * TALL + b) * WIDE + group * J + j];
    return total;
  }
};
