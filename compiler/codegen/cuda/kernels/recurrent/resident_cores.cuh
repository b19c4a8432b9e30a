// Products of 16-bit floats of a loop's resident kernel, whose matrices stay in registers. MMA_TYPE: bf16 or f16.
#include "resident.cuh"
#include "tensor_cores.cuh"

// A word: 7 elements and 16 bits.
__device__ __forceinline__ unsigned label_of(int step) { return (unsigned)(step + 1) << 16; }
__device__ __forceinline__ bool is_there(const uint4 &word, unsigned label) { return ((word.w ^ label) & 0xFFFF0000u) == 0; }
// A word that need not be read, or one that is not there.
__device__ __forceinline__ uint4 no_word(bool needed, unsigned label) { return make_uint4(0, 0, 0, needed ? ~label : label); }

// Puts the elements of 8 threads, of which the last has none, into their word. All threads of a warp call it.
template <class T> __device__ __forceinline__ void put(unsigned char *word, bool inside, bool row, float x, int step) {
  T y;
  store(&y, x);
  const unsigned bits = inside ? y.bits : 0, next = __shfl_xor_sync(0xFFFFFFFFu, bits, 1);
  const unsigned both = threadIdx.x % 8 == 6 ? bits | label_of(step) : bits | next << 16;
  const unsigned second = __shfl_xor_sync(0xFFFFFFFFu, both, 2), third = __shfl_xor_sync(0xFFFFFFFFu, both, 4);
  const unsigned last = __shfl_xor_sync(0xFFFFFFFFu, both, 6);
  if (row && threadIdx.x % 8 == 0)
    asm volatile("{\n.reg .b128 q;\nmov.b128 q, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], q;\n\t}" ::"l"(word),
                 "l"(both | (unsigned long long)second << 32), "l"(third | (unsigned long long)last << 32)
                 : "memory");
}

// The product of a left factor of LEFT groups, which all blocks made, and a matrix, of which this block keeps GROUPS * J
// columns: J neighbours in each group of H. Each warp sums CHUNKS * 4 words of a row, and leaves its sums in shared memory:
// for each warp WIDE columns of TALL * 16 rows. Of each 4 words a lane has one, of two rows: its first 4 elements for one
// instruction and the others for the next. The matrix lies in the same order, with 0 for the bits that say the step.
template <int GROUPS, int LEFT, int CHUNKS, int TALL, bool TURNED> struct Product {
  static constexpr int TILES = (GROUPS * J + 7) / 8, COUNT = LEFT * BLOCKS * WORDS; // words of a row
  static constexpr int PITCH = WARPS * CHUNKS * 4;      // in words
  static constexpr int WIDE = (TILES + 2) / 4 * 32 + 8; // so that neighbouring rows lie in different banks
  static constexpr int ITEMS = TALL * CHUNKS, TURNS = (ITEMS + 7) / 8;
  static constexpr int BATCH = (ITEMS + TURNS - 1) / TURNS; // loads in flight, of two rows each
  // Sums of an element: an instruction waits for the one before.
  static constexpr int CHAINS = TALL * TILES > 4 ? 1 : TALL * TILES > 2 || CHUNKS < 4 ? 2 : 4;
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
              const int word = (warp * CHUNKS + c) * 4 + lane % 4, element = word % WORDS * WORD + half * 4 + i * 2 + n;
              const int from = word / WORDS % BLOCKS * J + element, k = word / WORDS / BLOCKS * H + from;
              const bool there = half * 4 + i * 2 + n < WORD && element < J && from < H && word < COUNT;
              if (inside && there)
                both |= (unsigned)matrix[TURNED ? column * (LEFT * H) + k : (long long)k * (GROUPS * H) + column] << (16 * n);
            }
            right[c][half][tile][i] = both;
          }
    }
  }

  __device__ __forceinline__ void multiply_by(const uint4 *x, float *sums, int step) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, upper = lane / 4, first_word = warp * CHUNKS * 4 + lane % 4;
    const unsigned label = label_of(step);
    float d[CHAINS][TALL][TILES][4] = {};
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
          const uint4 high = words[b][0], low = words[b][1];
          const unsigned one[4] = {high.x, low.x, high.y, low.y};
          const unsigned two[4] = {high.z, low.z, high.w & 0xFFFF, low.w & 0xFFFF};
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            multiply(d[c * 2 % CHAINS][tall][tile], one, right[c][0][tile][0], right[c][0][tile][1]);
            multiply(d[(c * 2 + 1) % CHAINS][tall][tile], two, right[c][1][tile][0], right[c][1][tile][1]);
          }
        }
      }
    }
    float *to = sums + (warp * TALL * 16 + upper) * WIDE + lane % 4 * 2;
#pragma unroll
    for (int tall = 0; tall < TALL; ++tall)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float one = d[0][tall][tile][r * 2], two = d[0][tall][tile][r * 2 + 1];
#pragma unroll
          for (int chain = 1; chain < CHAINS; ++chain)
            one += d[chain][tall][tile][r * 2], two += d[chain][tall][tile][r * 2 + 1];
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
