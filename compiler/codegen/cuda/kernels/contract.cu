// c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], where z, m, n and k are groups of axes and an operand's place is any
// sum of strides, with coordinates that may fall outside of it and then count as zero. Matrix products and convolutions
// with their gradients alike.
//
// A block computes ROWS x COLS of c. DEPTH values of k at a time go to shared memory: by asynchronous copies, STAGES tiles in
// flight, where they are stored as they are summed and STAGES is not 1; else through registers, two tiles in turns. A thread
// keeps TALL x WIDE sums in registers, in order of k. The text in front of this file says how places are found by the numbers s:
//   a_row(s, z, m), a_step(s, k), a_place(s, row, step), -1 where that counts as zero, and the same of b;
//   c_place(s, z, m, n);
//   FINISHED(at, x), what becomes of the sum x of place ``at`` before it is written, by OTHERS, more tensors.

constexpr int THREADS = (ROWS / TALL) * (COLS / WIDE);
constexpr int PAD = 4;

template <int SIDE> struct Tile {
  static constexpr int COUNT = SIDE * DEPTH / THREADS; // elements a thread brings
  static_assert(SIDE * DEPTH % THREADS == 0 && THREADS % DEPTH == 0 && (THREADS % SIDE == 0 || SIDE % THREADS == 0), "");
};

template <class X, class Y> constexpr bool same = false;
template <class X> constexpr bool same<X, X> = true;

// One element to shared memory, 0 where it is not there; done when its group is waited for.
// ``From`` is T where this runs; a kernel that is no template must know it for other types, too.
template <class T, class From> __device__ __forceinline__ void copy_one(T *to, const From *from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
               "n"(sizeof(T)), "r"(there ? (int)sizeof(T) : 0));
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const A *__restrict__ a, const B *__restrict__ b, OTHERS C *__restrict__ c,
                                                                  NUMBERS) {
  const Numbers s = GIVEN;
  constexpr bool ASYNC = STAGES > 1 && same<A, SUM> && same<B, SUM>;
  constexpr int BUFFERS = ASYNC ? STAGES : 2;
  __shared__ alignas(16) SUM tile_a[BUFFERS][DEPTH][ROWS + PAD];
  __shared__ alignas(16) SUM tile_b[BUFFERS][DEPTH][COLS + PAD];
  const int thread = threadIdx.x;
  const int tiles_m = (s.M + ROWS - 1) / ROWS;
  const int m_first = blockIdx.x % tiles_m * ROWS, n_first = blockIdx.x / tiles_m * COLS;
  const int part = blockIdx.y, z = blockIdx.z;
  const int k_first = part * s.PART, k_last = min(s.K, k_first + s.PART);

  // Neighbouring threads bring neighbours in memory: along k, or along the tile's side.
  constexpr int COUNT_A = Tile<ROWS>::COUNT, COUNT_B = Tile<COLS>::COUNT;
  auto side_a = [&](int i) { return A_ALONG_K ? thread / DEPTH + i * (THREADS / DEPTH) : (thread + i * THREADS) % ROWS; };
  auto deep_a = [&](int i) { return A_ALONG_K ? thread % DEPTH : (thread + i * THREADS) / ROWS; };
  auto side_b = [&](int i) { return B_ALONG_K ? thread / DEPTH + i * (THREADS / DEPTH) : (thread + i * THREADS) % COLS; };
  auto deep_b = [&](int i) { return B_ALONG_K ? thread % DEPTH : (thread + i * THREADS) / COLS; };
  constexpr int OWN_A = A_ALONG_K ? COUNT_A : (THREADS % ROWS == 0 ? 1 : COUNT_A);
  constexpr int OWN_B = B_ALONG_K ? COUNT_B : (THREADS % COLS == 0 ? 1 : COUNT_B);
  PlaceA rows_a[OWN_A];
  PlaceB rows_b[OWN_B];
#pragma unroll
  for (int i = 0; i < OWN_A; ++i) rows_a[i] = a_row(s, z, min(m_first + side_a(i), s.M - 1));
#pragma unroll
  for (int i = 0; i < OWN_B; ++i) rows_b[i] = b_row(s, z, min(n_first + side_b(i), s.N - 1));

  wait_for_those_before();
  SUM held_a[COUNT_A], held_b[COUNT_B]; // unless ASYNC
  auto fetch = [&](int k, int buffer) {
#pragma unroll
    for (int i = 0; i < COUNT_A; ++i) {
      const int at = k + deep_a(i);
      const INDEX place = at < k_last ? a_place(s, rows_a[i % OWN_A], a_step(s, at)) : INDEX(-1);
      if constexpr (ASYNC)
        copy_one(&tile_a[buffer][deep_a(i)][side_a(i)], a + (place >= 0 ? place : 0), place >= 0);
      else
        held_a[i] = place >= 0 ? wide(a[place]) : SUM(0);
    }
#pragma unroll
    for (int i = 0; i < COUNT_B; ++i) {
      const int at = k + deep_b(i);
      const INDEX place = at < k_last ? b_place(s, rows_b[i % OWN_B], b_step(s, at)) : INDEX(-1);
      if constexpr (ASYNC)
        copy_one(&tile_b[buffer][deep_b(i)][side_b(i)], b + (place >= 0 ? place : 0), place >= 0);
      else
        held_b[i] = place >= 0 ? wide(b[place]) : SUM(0);
    }
  };
  auto put = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < COUNT_A; ++i) tile_a[buffer][deep_a(i)][side_a(i)] = held_a[i];
#pragma unroll
    for (int i = 0; i < COUNT_B; ++i) tile_b[buffer][deep_b(i)][side_b(i)] = held_b[i];
  };

  // A thread's rows and columns come in fours, spread over the tile, so that a warp reads each bank once.
  const int across = thread % (COLS / WIDE), down = thread / (COLS / WIDE);
  auto row = [&](int i) { return i / 4 * (ROWS / TALL * 4) + down * 4 + i % 4; };
  auto col = [&](int j) { return j / 4 * (COLS / WIDE * 4) + across * 4 + j % 4; };
  SUM sums[TALL][WIDE] = {};
  const int tiles = (max(k_last - k_first, 0) + DEPTH - 1) / DEPTH; // 0 where a sum has no products
  if constexpr (ASYNC) {
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) {
      if (tile < tiles) fetch(k_first + tile * DEPTH, tile);
      asm volatile("cp.async.commit_group;");
    }
  } else if (tiles) {
    fetch(k_first, 0);
    put(0);
  }
  for (int tile = 0; tile < tiles; ++tile) {
    const int buffer = tile % BUFFERS, next = tile + BUFFERS - 1;
    if constexpr (ASYNC) asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads(); // the tile is there for all, and nobody reads the one whose place the next takes
    if (next < tiles) fetch(k_first + next * DEPTH, next % BUFFERS);
    if constexpr (ASYNC) asm volatile("cp.async.commit_group;");
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      SUM left[TALL], right[WIDE];
#pragma unroll
      for (int i = 0; i < TALL; ++i) left[i] = tile_a[buffer][d][row(i)];
#pragma unroll
      for (int j = 0; j < WIDE; ++j) right[j] = tile_b[buffer][d][col(j)];
#pragma unroll
      for (int i = 0; i < TALL; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) sums[i][j] = fused(left[i], right[j], sums[i][j]);
    }
    if constexpr (!ASYNC) {
      if (next < tiles) put(next % BUFFERS);
    }
  }
#pragma unroll
  for (int i = 0; i < TALL; ++i) {
    const int m = m_first + row(i);
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      const int n = n_first + col(j);
      if (m < s.M && n < s.N) {
        const INDEX at = c_place(s, z, m, n);
        store(c + part * s.TOTAL + at, FINISHED(at, sums[i][j]));
      }
    }
  }
}
