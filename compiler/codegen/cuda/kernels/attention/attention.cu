// Attention in tiles that never leave the chip: the scores of ROWS places of one tensor against OTHERS of another at a
// time (Dao, Fu, Ermon, Rudra, Re 2022; two passes backward, so that nothing is added by two blocks). Sums are f32.
//
// MODE 0: y and lse; rows are queries, which see the keys go by: the largest score so far is taken off, and what was added
// up before is scaled when a larger one comes (Milakov and Gimelshein 2018). MODE 1: dq, likewise by queries. MODE 2: dk and
// dv, by keys, which see the queries go by; MODE 3: dk alone, MODE 4: dv alone, where registers do not hold both. Backward,
// the probabilities come of lse, and delta is the sum of dy * y.
//
// A warp has TALL times 16 rows. Tiles come to shared memory by asynchronous copies, STAGES of them in flight, each row's
// 16-byte chunks permuted, so that eight rows of one chunk are in eight different banks for ldmatrix. Rows that do not exist
// are zeros, and so are features from FEATURES up to the D of a tile. The text in front says the sizes, and where rows lie: at
// `start` elements plus numbers of the two axes of the stack and of the row times strides, which are multiples of the elements
// of a PIECE. SHARE heads of q in a row read one head of k and v; backward, a block of keys sees the queries of SHARE / PARTS
// of them, one head after the other, and writes a part of the sum. A key WINDOW or more positions away, if WINDOW
// is not 0, does not meet a query; tiles without a pair that meets are left out. With MASKED, a byte says of each query and
// key whether they meet; a query that meets no key gives 0, and its lse is minus infinity. With BIASED, a T for each query
// and key is added to their scaled score; minus infinity is as if they did not meet.

#include "attention_tiles.cuh"

#if MODE == 0
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v MASK_ARGUMENT BIAS_ARGUMENT, T *__restrict__ y,
           float *__restrict__ lse) {
  const T *const own[OWN] = {q}, *const other[2] = {k, v};
  constexpr Layout own_at[OWN] = {Q}, other_at[2] = {K, V};
#elif MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const float *__restrict__ lse,
           const float *__restrict__ delta, const T *__restrict__ dy MASK_ARGUMENT BIAS_ARGUMENT, T *__restrict__ dq) {
  const T *const own[OWN] = {q, dy}, *const other[2] = {k, v};
  constexpr Layout own_at[OWN] = {Q, DY}, other_at[2] = {K, V};
#else
#if MODE == 2
#define SLOPES T *__restrict__ dk, T *__restrict__ dv
#elif MODE == 3
#define SLOPES T *__restrict__ dk
#else
#define SLOPES T *__restrict__ dv
#endif
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, const float *__restrict__ lse,
           const float *__restrict__ delta, const T *__restrict__ dy MASK_ARGUMENT BIAS_ARGUMENT, SLOPES) {
  const T *const own[2] = {k, v}, *const other[2] = {q, dy};
  constexpr Layout own_at[2] = {K, V}, other_at[2] = {Q, DY};
#endif
  wait_for_those_before();
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned own_tiles = shared_address(memory), stages = own_tiles + OWN * OWN_TILE;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int BLOCKS = (OWN_COUNT + ROWS - 1) / ROWS, ALL = (OTHER_COUNT + OTHERS - 1) / OTHERS;
  constexpr int OWN_HEADS = BY_KEYS ? SHARE / PARTS : 1, OTHER_HEADS = BY_KEYS ? 1 : SHARE; // of q, for one of the tensors
  const int first_head = blockIdx.x / BLOCKS * OWN_HEADS;
  // the blocks with most to do first
  const int block = CAUSAL && !BY_KEYS ? BLOCKS - 1 - blockIdx.x % BLOCKS : blockIdx.x % BLOCKS;
  const int first = block * ROWS;
  const int begin = CAUSAL && BY_KEYS ? first / OTHERS : WINDOW ? max(0, first - WINDOW + 1) / OTHERS : 0;
  const int last = first + ROWS - 1 + (CAUSAL && !BY_KEYS ? 0 : WINDOW - 1); // the last place that may meet one of the rows
  const int end = WINDOW || (CAUSAL && !BY_KEYS) ? min(ALL, last / OTHERS + 1) : ALL;
  const int span = end - begin, steps = span * OWN_HEADS; // tiles of all heads, one head after the other
  auto head_of = [&](int step) { return OWN_HEADS == 1 ? first_head : first_head + step / span; };
  auto tile_of = [&](int step) { return OWN_HEADS == 1 ? begin + step : begin + step % span; };

  auto bring_stage = [&](int step) {
    const unsigned to = stages + step % STAGES * STAGE;
    const int stack = head_of(step), tile = tile_of(step);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      bring<OTHERS>(to + i * TILE, other[i] + begins<OTHER_HEADS>(other_at[i], stack), other_at[i].row, tile * OTHERS, OTHER_COUNT);
#if MODE >= 2
    for (int i = threadIdx.x; i < 2 * OTHERS; i += THREADS) {
      const int at = tile * OTHERS + i % OTHERS;
      const float *from = (i < OTHERS ? lse : delta) + (long long)stack * OTHER_COUNT;
      copy_word(to + 2 * TILE + i * 4, from + (at < OTHER_COUNT ? at : 0), at < OTHER_COUNT);
    }
#endif
#if MASK_CHUNK
    bring_mask(to + 2 * TILE + SUMS_TILE, mask_of(mask, stack), BY_KEYS ? tile * OTHERS : first, BY_KEYS ? first : tile * OTHERS);
#endif
  };

#pragma unroll
  for (int i = 0; i < OWN; ++i)
    bring<ROWS>(own_tiles + i * OWN_TILE, own[i] + begins<BY_KEYS ? SHARE : 1>(own_at[i], first_head), own_at[i].row, first, OWN_COUNT);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) bring_stage(s);
    asm volatile("cp.async.commit_group;");
  }

  Rows rows[OWN];
#pragma unroll
  for (int i = 0; i < OWN; ++i) rows[i].tile = own_tiles + i * OWN_TILE;
  Sums sums[MODE == 2 ? 2 : 1] = {};
  float top[TALL][2], total[TALL][2];
  const int row = first + warp * TALL * 16 + lane / 4; // of element 0
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#if MODE == 0
      top[i][h] = -INFINITE, total[i][h] = 0;
#elif MODE == 1
      const int at = row + i * 16 + h * 8;
      const bool there = at < OWN_COUNT;
      top[i][h] = there ? shift_of(lse[(long long)first_head * OWN_COUNT + at]) * LOG2_E : 0;
      total[i][h] = there ? delta[(long long)first_head * OWN_COUNT + at] : 0;
#endif
    }

  for (int step = 0; step < steps; ++step) {
    const int number = step % STAGES, later = step + STAGES - 1, tile = tile_of(step);
    const unsigned first_tile = stages + number * STAGE, second_tile = first_tile + TILE;
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    if (step == 0) round_chunks<OWN * ROWS>(own_tiles);
    round_chunks<2 * OTHERS>(first_tile);
    __syncthreads(); // the tile is there for all, and nobody reads the one that comes next
    if (step == 0)
#pragma unroll
      for (int i = 0; i < OWN; ++i) rows[i].hold();
    if (later < steps) bring_stage(later);
    asm volatile("cp.async.commit_group;");
    const int column = tile * OTHERS + lane % 4 * 2;

    Scores s;
    products(s, rows[0], first_tile);
#if BIASED
    add_bias<BY_KEYS>(s, bias_of(bias, head_of(step)), row, column, OWN_COUNT, OTHER_COUNT);
#endif
    const bool over = (tile + 1) * OTHERS > OTHER_COUNT;
    const bool crosses = CAUSAL && (BY_KEYS ? tile * OTHERS < first + ROWS : (tile + 1) * OTHERS > first);
    const bool beyond = WINDOW && (first + ROWS - 1 - tile * OTHERS >= WINDOW || (tile + 1) * OTHERS - 1 - first >= WINDOW);
    if (over || crosses || beyond) {
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const int m = row + i * 16 + r / 2 * 8, n = column + j * 8 + r % 2;
            const bool late = CAUSAL && (BY_KEYS ? m > n : n > m), far = WINDOW && (m - n >= WINDOW || n - m >= WINDOW);
            if (n >= OTHER_COUNT || late || far) s[i][j][r] = -INFINITE;
          }
    }
#if MASKED
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#if MASK_CHUNK
          const Meet meet = meets(memory + OWN * OWN_TILE + number * STAGE + 2 * TILE + SUMS_TILE, row - first + i * 16 + h * 8, column - tile * OTHERS + j * 8);
#else
          const Meet meet = meets(mask_of(mask, head_of(step)), min(row + i * 16 + h * 8, OWN_COUNT - 1), column + j * 8);
#endif
          if (!meet.first) s[i][j][2 * h] = -INFINITE;
          if (!meet.second) s[i][j][2 * h + 1] = -INFINITE;
        }
#endif
#if MODE == 0
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = top[i][h];
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j) most = fmaxf(most, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        const float shift = shift_of(most) * FACTOR, kept = power_of_2(fused(top[i][h], FACTOR, -shift));
        top[i][h] = most;
        float part = 0;
#pragma unroll
        for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
          for (int r = 2 * h; r < 2 * h + 2; ++r) part += s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift));
        total[i][h] = fused(total[i][h], kept, part);
#pragma unroll
        for (int j = 0; j < D / 8; ++j) sums[0][i][j][2 * h] *= kept, sums[0][i][j][2 * h + 1] *= kept;
      }
    add(sums[0], s, second_tile);
#else
#if MODE != 4
    Scores slope;
    products(slope, rows[1], second_tile);
#endif
    const float *row_values = reinterpret_cast<const float *>(memory + OWN * OWN_TILE + number * STAGE + 2 * TILE) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < OTHERS / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float shift = MODE == 1 ? top[i][r / 2] : shift_of(row_values[j * 8 + r % 2]) * LOG2_E;
          s[i][j][r] = power_of_2(fused(s[i][j][r], FACTOR, -shift));
#if MODE != 4
          const float shared = MODE == 1 ? total[i][r / 2] : row_values[OTHERS + j * 8 + r % 2];
          slope[i][j][r] = s[i][j][r] * (slope[i][j][r] - shared);
#endif
        }
#if MODE != 4
    add(sums[0], slope, first_tile);
#endif
#if MODE == 2 || MODE == 4
    add(sums[MODE == 2], s, second_tile);
#endif
#endif
  }

  asm volatile("cp.async.wait_group 0;");
  float factor[TALL][2];
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#if MODE == 0
      float whole = total[i][h] + __shfl_xor_sync(0xFFFFFFFFu, total[i][h], 1);
      whole += __shfl_xor_sync(0xFFFFFFFFu, whole, 2);
      const int at = row + i * 16 + h * 8;
      if (lane % 4 == 0 && at < OWN_COUNT) lse[(long long)first_head * OWN_COUNT + at] = fused(top[i][h], SCALE, logf(whole));
      factor[i][h] = GUARDED && whole == 0 ? 0 : 1 / whole;
#else
      factor[i][h] = SCALE;
#endif
    }
#if MODE == 0
  constexpr Layout to = Y;
  write(y + begins<1>(to, first_head), to.row, sums[0], factor, memory, first, OWN_COUNT);
#elif MODE == 1
  constexpr Layout to = DQ;
  write(dq + begins<1>(to, first_head), to.row, sums[0], factor, memory, first, OWN_COUNT);
#endif
#if MODE == 2 || MODE == 3
  constexpr Layout to = DK;
  write(dk + begins<OWN_HEADS>(to, first_head), to.row, sums[0], factor, memory, first, OWN_COUNT);
#endif
#if MODE == 2 || MODE == 4
  constexpr Layout values_to = DV;
#pragma unroll
  for (int i = 0; i < TALL; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[i][h] = 1;
  write(dv + begins<OWN_HEADS>(values_to, first_head), values_to.row, sums[MODE == 2], factor, memory + (OWN - 1) * OWN_TILE, first, OWN_COUNT);
#endif
}
