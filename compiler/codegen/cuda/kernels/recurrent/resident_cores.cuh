// Products on tensor cores of a loop's resident kernel, whose matrices stay in registers. The text in front has the words: those
// of half_words.cuh or tf32_words.cuh.
#include "tensor_cores.cuh"

// The product of a left factor of LEFT groups, which all blocks made, and a matrix, of which this block keeps GROUPS * J
// columns: J neighbours in each group of H. Each warp sums CHUNKS * 4 words of a row, and leaves its sums in shared memory:
// for each warp WIDE columns of TALL * 16 rows. Of each 4 words a lane has one, of two rows, and gives two registers of its
// elements to each instruction. The matrix lies in the same order, with 0 for the bits that say the step. LOADS: of words of
// two rows, so many are on their way at most.
template <int GROUPS, int LEFT, int CHUNKS, int TALL, int LOADS, bool TURNED> struct Product {
  static constexpr int TILES = (GROUPS * J + 7) / 8, COUNT = LEFT * BLOCKS * WORDS; // words of a row
  static constexpr int PITCH = WARPS * CHUNKS * 4;      // in words
  static constexpr int WIDE = (TILES + 2) / 4 * 32 + 8; // so that neighbouring rows lie in different banks
  static constexpr int ITEMS = TALL * CHUNKS, TURNS = (ITEMS + LOADS - 1) / LOADS;
  static constexpr int BATCH = (ITEMS + TURNS - 1) / TURNS; // loads in flight
  // Sums of an element: an instruction waits for the one before.
  static constexpr int CHAINS = TALL * TILES > 4 ? 1 : TALL * TILES > 2 || CHUNKS < 4 ? 2 : 4;
  unsigned right[CHUNKS][TILES][FACTORS];

  template <class T> __device__ __forceinline__ void load(const T *__restrict__ matrix) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const int own = tile * 8 + lane / 4, group = own / J, j = blockIdx.x * J + own % J;
      const bool inside = group < GROUPS && j < H;
      const long long column = group * H + j;
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int r = 0; r < FACTORS; ++r) {
          unsigned bits = 0;
#pragma unroll
          for (int n = 0; n < PACKED; ++n) {
            const int word = (warp * CHUNKS + c) * 4 + lane % 4, element = word % WORDS * WORD + r * PACKED + n;
            const int from = word / WORDS % BLOCKS * J + element, k = word / WORDS / BLOCKS * H + from;
            const bool there = r * PACKED + n < WORD && element < J && from < H && word < COUNT;
            if (inside && there)
              bits |= factor(matrix[TURNED ? column * (LEFT * H) + k : (long long)k * (GROUPS * H) + column]) << (16 * n);
          }
          right[c][tile][r] = bits;
        }
    }
  }

  __device__ __forceinline__ void multiply_by(const uint4 *x, float *sums, int step) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, upper = lane / 4, first_word = warp * CHUNKS * 4 + lane % 4;
    const unsigned label = label_of(step);
    float d[CHAINS][TILES][4];
#pragma unroll
    for (int first = 0; first < ITEMS; first += BATCH) {
      uint4 words[BATCH][2];
#pragma unroll
      for (int b = 0; b < BATCH; ++b)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int tall = (first + b) / CHUNKS, c = (first + b) % CHUNKS;
          words[b][r] = no_word(first + b < ITEMS && tall * 16 + r * 8 + upper < ROWS && first_word + c * 4 < COUNT, label);
        }
      bool waits;
      do {
        bool all = true;
#pragma unroll
        for (int b = 0; b < BATCH; ++b)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int tall = (first + b) / CHUNKS, c = (first + b) % CHUNKS;
            const uint4 *from = x + (tall * 16 + r * 8 + upper) * PITCH + first_word + c * 4;
            if (!is_there(words[b][r], label)) words[b][r] = take(from);
          }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) all = all && is_there(words[b][0], label) && is_there(words[b][1], label);
        waits = __ballot_sync(0xFFFFFFFFu, !all) != 0;
      } while (waits);
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const int item = first + b, tall = item / CHUNKS, c = item % CHUNKS;
        if (item < ITEMS) {
          if (c == 0) clear(d);
          unsigned high[FACTORS], low[FACTORS];
          unpack(high, words[b][0]);
          unpack(low, words[b][1]);
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int i = 0; i < FACTORS / 2; ++i) {
              const unsigned left[4] = {high[2 * i], low[2 * i], high[2 * i + 1], low[2 * i + 1]};
              const unsigned(&both)[FACTORS] = right[c][tile];
              multiply(d[(c * (FACTORS / 2) + i) % CHAINS][tile], left, both[2 * i], both[2 * i + 1]);
            }
          if (c == CHUNKS - 1) write(d, sums + ((warp * TALL + tall) * 16 + upper) * WIDE + lane % 4 * 2);
        }
      }
    }
  }

  __device__ __forceinline__ static void clear(float (&d)[CHAINS][TILES][4]) {
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) d[chain][tile][i] = 0;
  }
  // A lane's sums of 16 rows.
  __device__ __forceinline__ static void write(const float (&d)[CHAINS][TILES][4], float *to) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float one = d[0][tile][r * 2], two = d[0][tile][r * 2 + 1];
#pragma unroll
        for (int chain = 1; chain < CHAINS; ++chain) one += d[chain][tile][r * 2], two += d[chain][tile][r * 2 + 1];
        store(to + r * 8 * WIDE + tile * 8, one, two);
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
