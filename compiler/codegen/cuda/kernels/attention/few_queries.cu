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
  constexpr Layout q_at = Q, k_at = K, v_at = V;
  const int stack = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS; // of heads of k
  const int team = threadIdx.x / TEAM, member = threadIdx.x % TEAM, feature = member * 8;
  const bool here = feature < FEATURES;
  wait_for_those_before();
  float own[ROWS][8], sums[ROWS][8], top[ROWS], total[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const T *const from = q + begins<1>(q_at, stack * SHARE + r / QUERIES) + r % QUERIES * q_at.row;
#pragma unroll
    for (int i = 0; i < 8; ++i) own[r][i] = sums[r][i] = 0;
    if (here) read8(own[r], from + feature);
    top[r] = -INFINITE, total[r] = 0;
  }
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
        constexpr Pairs at = MASK;
        const int head = stack * SHARE + r / QUERIES;
        if (key < last)
          meets[n][r] = mask[at.start + head / INNER * at.outer + head % INNER * at.inner + r % QUERIES * at.query + key * at.key] != 0;
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
      for (int r = 0; r < ROWS; ++r) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) score = __fmaf_rn(own[r][i], key_row[n][i], score);
#pragma unroll
        for (int half = TEAM / 2; half; half /= 2) score += __shfl_xor_sync(0xFFFFFFFFu, score, half);
        score = meets[n][r] ? score * FACTOR : -INFINITE;
        const float to = shift(top[r], score), before = power_of_2(top[r] - to), weight = power_of_2(score - to);
        top[r] = fmaxf(top[r], score);
        total[r] = __fmaf_rn(total[r], before, weight);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[r][i] = __fmaf_rn(weight, value_row[n][i], sums[r][i] * before);
      }
  }
  // The sums of a warp's teams, then of the block's warps.
  __shared__ float warp_tops[THREADS / 32][ROWS], warp_totals[THREADS / 32][ROWS], warp_sums[THREADS / 32][ROWS][TEAM * 8];
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int half = TEAM; half < 32; half *= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, top[r], half), to = shift(top[r], other);
      const float mine = power_of_2(top[r] - to), theirs = power_of_2(other - to);
      total[r] = total[r] * mine + __shfl_xor_sync(0xFFFFFFFFu, total[r], half) * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[r][i] = sums[r][i] * mine + __shfl_xor_sync(0xFFFFFFFFu, sums[r][i], half) * theirs;
      top[r] = fmaxf(top[r], other);
    }
    if (threadIdx.x % 32 < TEAM) {
      if (member == 0) warp_tops[warp][r] = top[r], warp_totals[warp][r] = total[r];
#pragma unroll
      for (int i = 0; i < 8; ++i) warp_sums[warp][r][feature + i] = sums[r][i];
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < ROWS * FEATURES; e += THREADS) {
    const int r = e / FEATURES, f = e % FEATURES;
    float most = -INFINITE, sum = 0, all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) most = fmaxf(most, warp_tops[w][r]);
    const float to = most == -INFINITE ? 0 : most;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) {
      const float scale = power_of_2(warp_tops[w][r] - to);
      sum = __fmaf_rn(warp_sums[w][r][f], scale, sum), all = __fmaf_rn(warp_totals[w][r], scale, all);
    }
#if SPLITS == 1
    constexpr Layout y_at = Y;
    store(y + begins<1>(y_at, stack * SHARE + r / QUERIES) + r % QUERIES * y_at.row + f, all == 0 ? 0.0f : sum / all);
#else
    RESULT *const part = y + ((long long)blockIdx.x * ROWS + r) * (FEATURES + 2);
    part[f] = sum;
    if (f == 0) part[FEATURES] = most, part[FEATURES + 1] = all;
#endif
  }
}
