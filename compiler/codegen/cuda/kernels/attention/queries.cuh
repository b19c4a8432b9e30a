#include "query_parts.cuh"

constexpr float LOG2_E = 0x1.715476p+0f, FACTOR = SCALE * LOG2_E;

struct Pairs {
  long long start, outer, inner, query, key;
};

// 8 neighbours as floats, rounded to T.
template <class FROM> __device__ __forceinline__ void read8(float (&to)[8], const FROM *from) {
  constexpr int EACH = 16 / sizeof(FROM);
#pragma unroll
  for (int part = 0; part < 8 / EACH; ++part) {
    const Lanes<FROM, EACH> lanes = Lanes<FROM, EACH>::read(from + part * EACH);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      to[part * EACH + i] = wide(lanes.x[i]);
      if constexpr (sizeof(FROM) > sizeof(T)) {
        T rounded;
        store(&rounded, wide(lanes.x[i]));
        to[part * EACH + i] = wide(rounded);
      }
    }
  }
}

// What is taken off the scores of two sums that become one: the larger of their tops, nothing where all are minus infinity.
__device__ __forceinline__ float shift(float top, float more) {
  const float both = fmaxf(top, more);
  return both == -INFINITE ? 0 : both;
}

#if MASKED
// Whether row `r` of a head of k meets a key.
__device__ __forceinline__ bool meets_key(const unsigned char *mask, int stack, int r, int key) {
  constexpr Pairs at = MASK;
  const int head = stack * SHARE + r / QUERIES;
  return mask[at.start + head / INNER * at.outer + head % INNER * at.inner + r % QUERIES * at.query + key * at.key] != 0;
}
#endif

// The attention of ROWS queries to the keys that a team has seen: 8 features of a thread, not yet divided by the sum of weights.
struct Seen {
  float own[ROWS][8], sums[ROWS][8], top[ROWS], total[ROWS];

  __device__ __forceinline__ void begin(const T *q, int stack, int feature) {
    constexpr Layout q_at = Q;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const T *const from = q + row_of(q_at, stack, r);
#pragma unroll
      for (int i = 0; i < 8; ++i) own[r][i] = sums[r][i] = 0;
      if (feature < FEATURES) read8(own[r], from + feature);
      top[r] = -INFINITE, total[r] = 0;
    }
  }

  __device__ __forceinline__ void see(int r, const float (&key)[8], const float (&value)[8], bool meets) {
    float score = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) score = __fmaf_rn(own[r][i], key[i], score);
#pragma unroll
    for (int half = TEAM / 2; half; half /= 2) score += __shfl_xor_sync(0xFFFFFFFFu, score, half);
    score = meets ? score * FACTOR : -INFINITE;
    const float to = shift(top[r], score), before = power_of_2(top[r] - to), weight = power_of_2(score - to);
    top[r] = fmaxf(top[r], score);
    total[r] = __fmaf_rn(total[r], before, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[r][i] = __fmaf_rn(weight, value[i], sums[r][i] * before);
  }
};

// The sums of the teams of each warp, for the block.
template <int WARPS> struct OfWarps {
  float tops[WARPS][ROWS], totals[WARPS][ROWS], sums[WARPS][ROWS][TEAM * 8];

  __device__ __forceinline__ void put(Seen &seen) {
    const int member = threadIdx.x % TEAM, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int half = TEAM; half < 32; half *= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, seen.top[r], half), to = shift(seen.top[r], other);
        const float mine = power_of_2(seen.top[r] - to), theirs = power_of_2(other - to);
        seen.total[r] = seen.total[r] * mine + __shfl_xor_sync(0xFFFFFFFFu, seen.total[r], half) * theirs;
#pragma unroll
        for (int i = 0; i < 8; ++i)
          seen.sums[r][i] = seen.sums[r][i] * mine + __shfl_xor_sync(0xFFFFFFFFu, seen.sums[r][i], half) * theirs;
        seen.top[r] = fmaxf(seen.top[r], other);
      }
      if (threadIdx.x % 32 < TEAM) {
        if (member == 0) tops[warp][r] = seen.top[r], totals[warp][r] = seen.total[r];
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[warp][r][member * 8 + i] = seen.sums[r][i];
      }
    }
  }

  // Feature `f` of row `r` of all warps, added in order; the largest score that was taken off, and the sum of weights.
  __device__ __forceinline__ float get(int r, int f, float &most, float &all) const {
    float sum = 0;
    most = -INFINITE, all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) most = fmaxf(most, tops[w][r]);
    const float to = most == -INFINITE ? 0 : most;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float scale = power_of_2(tops[w][r] - to);
      sum = __fmaf_rn(sums[w][r][f], scale, sum), all = __fmaf_rn(totals[w][r], scale, all);
    }
    return sum;
  }
};

// A part of few_queries_join.
__device__ __forceinline__ void put_part(float *part, int f, float sum, float most, float all) {
  part[f] = sum;
  if (f == 0) part[FEATURES] = most, part[FEATURES + 1] = all;
}
