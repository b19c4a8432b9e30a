// Which pairs of queries and keys meet, and the bias of a pair: where a mask and a bias lie, and the part of a mask of a tile in
// shared memory. For attention_tiles.cuh.

struct Pairs {
  long long start, outer, inner, query, key;
};

#if MASKED
#define MASK_ARGUMENT , const unsigned char *__restrict__ mask
struct Meet {
  bool first, second;
};
constexpr Pairs MASK_AT = MASK;

// Where the mask of a head begins.
__device__ __forceinline__ const unsigned char *mask_of(const unsigned char *mask, int stack) {
  return mask + MASK_AT.start + stack / INNER * MASK_AT.outer + stack % INNER * MASK_AT.inner;
}
#else
#define MASK_ARGUMENT
#endif

#if BIASED
#define BIAS_ARGUMENT , const T *__restrict__ bias
constexpr Pairs BIAS_AT = BIAS;

// Where the bias of a head begins.
__device__ __forceinline__ const T *bias_of(const T *bias, int stack) {
  return bias + BIAS_AT.start + stack / INNER * BIAS_AT.outer + stack % INNER * BIAS_AT.inner;
}
#else
#define BIAS_ARGUMENT
#endif

#if MASK_CHUNK
// The mask of a tile in shared memory: a line for each query, or one for all of them. Lines are so far apart that the
// eight rows of a fragment are in different banks.
constexpr int LINES = MASK_AT.query == 0 ? 1 : BY_KEYS ? OTHERS : ROWS, WIDTH = BY_KEYS ? ROWS : OTHERS, PITCH = WIDTH + 16;
constexpr int MASK_TILE = LINES * PITCH;

// What keys from `key` on and queries from `query` on have, by MASK_CHUNK bytes; nothing for rows that do not exist.
__device__ __forceinline__ void bring_mask(unsigned to, const unsigned char *of, int query, int key) {
  constexpr int QUERIES = BY_KEYS ? OTHER_COUNT : OWN_COUNT, KEYS = BY_KEYS ? OWN_COUNT : OTHER_COUNT, EACH = WIDTH / MASK_CHUNK;
#pragma unroll
  for (int i = 0; i < (LINES * EACH + THREADS - 1) / THREADS; ++i) {
    const int number = threadIdx.x + i * THREADS, line = number / EACH, at = number % EACH * MASK_CHUNK;
    if (LINES * EACH % THREADS && number >= LINES * EACH) break;
    const bool valid = (LINES == 1 || query + line < QUERIES) && key + at < KEYS;
    const unsigned char *const from = of + (query + line) * MASK_AT.query + key + at;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to + line * PITCH + at), "l"(valid ? from : of), "n"(MASK_CHUNK), "r"(valid ? MASK_CHUNK : 0));
  }
}

// Whether own row m of a tile meets others n and n + 1 of it, n even.
__device__ __forceinline__ Meet meets(const unsigned char *tile, int m, int n) {
  if constexpr (BY_KEYS) {
    const unsigned char *const at = tile + m + (LINES == 1 ? 0 : n * PITCH);
    return {at[0] != 0, at[LINES == 1 ? 0 : PITCH] != 0};
  } else {
    const unsigned short both = *reinterpret_cast<const unsigned short *>(tile + (LINES == 1 ? 0 : m * PITCH) + n);
    return {(both & 0xFF) != 0, both > 0xFF};
  }
}
#else
constexpr int MASK_TILE = 0;
#if MASKED
// Whether row m of `own` meets rows n and n + 1 of the others, n even; of rows that do not exist it says anything.
__device__ __forceinline__ Meet meets(const unsigned char *of, int m, int n) {
  constexpr Pairs at = MASK_AT;
  constexpr long long step = BY_KEYS ? at.key : at.query, across = BY_KEYS ? at.query : at.key;
  // two neighbours are one load where each pair lies at an even place
  constexpr bool PAIRED = across == 1 && OTHER_COUNT % 2 == 0 && (at.start | at.outer | at.inner | step) % 2 == 0;
  const unsigned char *const line = of + m * step;
  if constexpr (PAIRED) {
    const uchar2 both = *reinterpret_cast<const uchar2 *>(line + min(n, OTHER_COUNT - 2));
    return {both.x != 0, both.y != 0};
  } else {
    return {line[min(n, OTHER_COUNT - 1) * across] != 0, line[min(n + 1, OTHER_COUNT - 1) * across] != 0};
  }
}
#endif
#endif
