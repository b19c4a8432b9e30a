// Gradients of attention by blocks that keep one tile of pairs for many heads: the heads that share a tile of a bias come by
// one after the other, each with its rows of q, dy, k and v. The sum of the scores' gradients stays in registers, and nothing
// is added by two blocks.
//
// WHOLE: a tile has all queries and keys of a head. Then the block also computes dq, dk and dv, each operand is read once, and
// what a row shares, the sum of dy * y, is that of its probabilities times their gradients. Otherwise a block has ROWS of the
// queries and OTHERS of the keys, and delta has these sums. With SLOPES, a block writes its sums: a plane of queries and keys
// for each part and each matrix of the bias. Matrix u serves the heads u * UNIT_STEP + n * MEMBER_STEP, n below MEMBERS; each
// of PARTS blocks has EACH_PART of them in a row.
//
// Scores are computed twice, once with queries as rows, once with keys as rows: as factors of the products with k, and with q
// and dy. The other terms are those of attention.cu, in which own rows are queries.

#include "attention_tiles.cuh"

constexpr int STAGE_BYTES = 2 * OWN_TILE + 2 * TILE + 8 * ROWS; // q, dy, k, v; lse and what a row shares
static_assert(!WHOLE || ROWS == OTHERS, "rows and others change places");

#if WHOLE
#define SHARED_ARGUMENT
#define ROWS_ARGUMENTS , T *__restrict__ dq, T *__restrict__ dk, T *__restrict__ dv
#else
#define SHARED_ARGUMENT const float *__restrict__ delta,
#define ROWS_ARGUMENTS
#endif
#if SLOPES
#define SUMS_ARGUMENT , RESULT *__restrict__ slopes
#else
#define SUMS_ARGUMENT
#endif
#if MASKED
#define MASK_BEGIN mask_of(mask, head)
#else
#define MASK_BEGIN nullptr
#endif

// Minus infinity for pairs that do not meet or do not exist. KEYS: own rows, from m on, are keys.
template <bool KEYS> __device__ __forceinline__ void hide(Scores &s, const unsigned char *mask, int m, int n) {
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int own = m + i * 16 + r / 2 * 8, other = n + j * 8 + r % 2;
        const int query = KEYS ? other : own, key = KEYS ? own : other;
        bool hidden = other >= (KEYS ? OWN_COUNT : OTHER_COUNT) || (CAUSAL && key > query);
        hidden = hidden || (WINDOW && (query - key >= WINDOW || key - query >= WINDOW));
#if MASKED
        hidden = hidden || !mask[min(query, OWN_COUNT - 1) * MASK_AT.query + min(key, OTHER_COUNT - 1) * MASK_AT.key];
#endif
        if (hidden) s[i][j][r] = -INFINITE;
      }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const float *__restrict__ lse,
           SHARED_ARGUMENT const T *__restrict__ dy MASK_ARGUMENT BIAS_ARGUMENT ROWS_ARGUMENTS SUMS_ARGUMENT) {
  wait_for_those_before();
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned stages = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int ACROSS = (OTHER_COUNT + OTHERS - 1) / OTHERS, ALL = (OWN_COUNT + ROWS - 1) / ROWS * ACROSS;
  const int tile = blockIdx.x % ALL, part = blockIdx.x / ALL % PARTS, unit = blockIdx.x / ALL / PARTS;
  const int first = tile / ACROSS * ROWS, first_key = tile % ACROSS * OTHERS;
  const bool late = CAUSAL && first_key >= first + ROWS;
  const bool far = WINDOW && (first - first_key - OTHERS + 1 >= WINDOW || first_key - first - ROWS + 1 >= WINDOW);
  const int begin = part * EACH_PART, count = late || far ? 0 : min(EACH_PART, MEMBERS - begin);
  auto head_of = [&](int step) { return unit * UNIT_STEP + (begin + step) * MEMBER_STEP; };

  constexpr Layout q_at = Q, k_at = K, v_at = V, dy_at = DY;
  auto bring_stage = [&](int step) {
    const unsigned to = stages + step % STAGES * STAGE_BYTES;
    const int head = head_of(step);
    bring<ROWS>(to, q + begins<1>(q_at, head), q_at.row, first, OWN_COUNT);
    bring<ROWS>(to + OWN_TILE, dy + begins<1>(dy_at, head), dy_at.row, first, OWN_COUNT);
    bring<OTHERS>(to + 2 * OWN_TILE, k + begins<SHARE>(k_at, head), k_at.row, first_key, OTHER_COUNT);
    bring<OTHERS>(to + 2 * OWN_TILE + TILE, v + begins<SHARE>(v_at, head), v_at.row, first_key, OTHER_COUNT);
    for (int i = threadIdx.x; i < (WHOLE ? 1 : 2) * ROWS; i += THREADS) {
      const int at = first + i % ROWS;
#if WHOLE
      const float *const from = lse;
#else
      const float *const from = i < ROWS ? lse : delta;
#endif
      copy_word(to + 2 * OWN_TILE + 2 * TILE + i * 4, from + (long long)head * OWN_COUNT + (at < OWN_COUNT ? at : 0), at < OWN_COUNT);
    }
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < count) bring_stage(s);
    asm volatile("cp.async.commit_group;");
  }

#if SLOPES
  Scores total = {};
#endif
  const int row = warp * TALL * 16 + lane / 4, column = lane % 4 * 2; // in the tile, of element 0
  for (int step = 0; step < count; ++step) {
    const int head = head_of(step), later = step + STAGES - 1;
    __syncthreads(); // nobody reads the stage that comes next
    if (later < count) bring_stage(later);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1));
    const unsigned q_tile = stages + step % STAGES * STAGE_BYTES, dy_tile = q_tile + OWN_TILE, k_tile = dy_tile + OWN_TILE, v_tile = k_tile + TILE;
    unsigned char *const at = memory + step % STAGES * STAGE_BYTES;
    float *const row_values = reinterpret_cast<float *>(at + 2 * OWN_TILE + 2 * TILE);
    round_chunks<2 * ROWS>(q_tile);
    round_chunks<2 * OTHERS>(k_tile);
    __syncthreads(); // the stage is there for all

    Scores s, slope;
    Rows rows = {q_tile}, others = {dy_tile};
    products(s, rows, k_tile);
#if BIASED
    add_bias<false>(s, bias_of(bias, head), first + row, first_key + column, OWN_COUNT, OTHER_COUNT);
#endif
    hide<false>(s, MASK_BEGIN, first + row, first_key + column);
    products(slope, others, v_tile);
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int own = row + i * 16 + h * 8;
        const float shift = shift_of(row_values[own]) * LOG2_E;
        float shared = WHOLE ? 0 : row_values[ROWS + own];
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 2 * h; r < 2 * h + 2; ++r) {
            s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift));
            if (WHOLE) shared = fused(s[i][j][r], slope[i][j][r], shared);
          }
        if (WHOLE) {
          shared += __shfl_xor_sync(0xFFFFFFFFu, shared, 1);
          shared += __shfl_xor_sync(0xFFFFFFFFu, shared, 2);
          if (lane % 4 == 0) row_values[ROWS + own] = own < OWN_COUNT ? shared : 0;
        }
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 2 * h; r < 2 * h + 2; ++r) {
            slope[i][j][r] = s[i][j][r] * (slope[i][j][r] - shared);
#if SLOPES
            total[i][j][r] += slope[i][j][r];
#endif
          }
      }
#if WHOLE
    Sums of_q = {}, of_k = {}, of_v = {};
    add(of_q, slope, k_tile);
    rows.tile = k_tile, others.tile = v_tile;
    products(s, rows, q_tile);
#if BIASED
    add_bias<true>(s, bias_of(bias, head), row, column, OTHER_COUNT, OWN_COUNT);
#endif
    hide<true>(s, MASK_BEGIN, row, column);
    products(slope, others, dy_tile);
    __syncthreads(); // what rows share is there
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int other = column + j * 8 + r % 2;
          s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift_of(row_values[other]) * LOG2_E));
          slope[i][j][r] = s[i][j][r] * (slope[i][j][r] - row_values[ROWS + other]);
        }
    add(of_k, slope, q_tile);
    add(of_v, s, dy_tile);
    __syncthreads(); // nobody reads the tiles
    constexpr Layout dq_at = DQ, dk_at = DK, dv_at = DV;
    float factor[TALL][2], one[TALL][2];
#pragma unroll
    for (int i = 0; i < TALL; ++i) factor[i][0] = factor[i][1] = SCALE, one[i][0] = one[i][1] = 1;
    write(dq + begins<1>(dq_at, head), dq_at.row, of_q, factor, at, 0, OWN_COUNT);
    write(dk + begins<1>(dk_at, head), dk_at.row, of_k, factor, at + 2 * OWN_TILE, 0, OTHER_COUNT);
    write(dv + begins<1>(dv_at, head), dv_at.row, of_v, one, at + 2 * OWN_TILE + TILE, 0, OTHER_COUNT);
#endif
  }
  asm volatile("cp.async.wait_group 0;");

#if SLOPES
  RESULT *const plane = slopes + ((long long)part * UNITS + unit) * OWN_COUNT * OTHER_COUNT;
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int query = first + row + i * 16 + r / 2 * 8, key = first_key + column + j * 8 + r % 2;
        if (query < OWN_COUNT && key < OTHER_COUNT) store(plane + (long long)query * OTHER_COUNT + key, total[i][j][r]);
      }
#endif
}
