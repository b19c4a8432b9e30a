// Attention of ROWS queries, of SHARE heads of q, to the KEYS of their head of k; sums are f32. A block sees the keys of one of
// SPLITS parts, so that a long cache keeps the device busy (Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding"). A team of TEAM
// threads has 8 features each and sees one key after the other, NEXT at once: the largest score so far is taken off, and what
// was added up before is scaled when a larger one comes (Milakov and Gimelshein 2018). The teams' sums are then added in
// order, and those of the parts by the kernel few_queries_join. Keys that meet no query are not read.
//
// k and v are of KV, rounded to T. Where rows lie: at `start` elements plus numbers of the two axes of the stack and of the row
// times strides, which are multiples of 8. With MASKED, a byte says of each query and key whether they meet.

constexpr int TEAMS = THREADS / TEAM, PER_WARP = 32 / TEAM;
#include "queries.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const KV *__restrict__ k, const KV *__restrict__ v MASK_ARGUMENT, RESULT *__restrict__ y) {
  constexpr Layout k_at = K, v_at = V;
  const int stack = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS; // of heads of k
  const int team = threadIdx.x / TEAM, feature = threadIdx.x % TEAM * 8;
  const bool here = feature < FEATURES;
  wait_for_those_before();
  Seen seen;
  seen.begin(q, stack, feature);
  const KV *const keys = k + begins<SHARE>(k_at, stack * SHARE) + feature;
  const KV *const values = v + begins<SHARE>(v_at, stack * SHARE) + feature;
  const int first = split * PART, last = min(KEYS, first + PART);
  for (int begin = first; begin < last; begin += TEAMS * NEXT) {
    bool meets[NEXT][ROWS], any[NEXT], some = false;
#pragma unroll
    for (int n = 0; n < NEXT; ++n) {
      const int key = begin + n * TEAMS + team;
      any[n] = false;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        meets[n][r] = key < last;
#if MASKED
        if (key < last) meets[n][r] = meets_key(mask, stack, r, key);
#endif
        any[n] |= meets[n][r];
      }
      some |= any[n];
    }
    if (!__ballot_sync(0xFFFFFFFFu, some)) continue;
    float key_row[NEXT][8], value_row[NEXT][8];
#pragma unroll
    for (int n = 0; n < NEXT; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) key_row[n][i] = value_row[n][i] = 0;
      const long long key = begin + n * TEAMS + team;
      if (any[n] && here) read8(key_row[n], keys + key * k_at.row), read8(value_row[n], values + key * v_at.row);
    }
#pragma unroll
    for (int n = 0; n < NEXT; ++n)
#pragma unroll
      for (int r = 0; r < ROWS; ++r) seen.see(r, key_row[n], value_row[n], meets[n][r]);
  }
  // The sums of a warp's teams, then of the block's warps.
  __shared__ OfWarps<THREADS / 32> warps;
  warps.put(seen);
  __syncthreads();
  for (int e = threadIdx.x; e < ROWS * FEATURES; e += THREADS) {
    const int r = e / FEATURES, f = e % FEATURES;
    float most, all;
    const float sum = warps.get(r, f, most, all);
#if SPLITS == 1
    constexpr Layout y_at = Y;
    store(y + row_of(y_at, stack, r) + f, all == 0 ? 0.0f : sum / all);
#else
    put_part(y + ((long long)blockIdx.x * ROWS + r) * (FEATURES + 2), f, sum, most, all);
#endif
  }
}
