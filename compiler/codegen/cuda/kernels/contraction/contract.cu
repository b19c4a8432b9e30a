// c[z, m, n] = sum over k of a[z, m, k] * b[z, k, n], where z, m, n and k are groups of axes and an operand's place is any
// sum of strides, with coordinates that may fall outside of it and then count as zero. Matrix products and convolutions
// with their gradients alike.
//
// A block computes ROWS x COLS of c. DEPTH values of k at a time go to shared memory: by asynchronous copies, STAGES tiles in
// flight, where they are stored as they are summed and STAGES is not 1, and then by 16 bytes where WHOLE_A and WHOLE_B say that
// these are neighbours; else through registers, two tiles in turns. SLICES groups of threads share the values of k of a tile;
// a thread, or with TF32 a warp, keeps TALL x WIDE sums in registers, in order of k, and the slices' sums are added in order at
// the end. The text in front of this file says how places are found by the numbers s:
//   a_row(s, z, m), a_step(s, k), a_place(s, row, step), -1 where that counts as zero, and the same of b;
//   c_place(s, z, m, n);
//   FINISHED(at, x), what becomes of the sum x of place ``at`` before it is written, by OTHERS, more tensors.

constexpr int SHARE = (ROWS / TALL) * (COLS / WIDE) * (TF32 ? 32 : 1), THREADS = SHARE * SLICES, STEPS = DEPTH / SLICES;
constexpr int MOST = TALL * WIDE > 16 ? 2 : 4, AT_ONCE = STEPS < MOST ? STEPS : MOST; // values of k in registers

template <class X, class Y> constexpr bool same = false;
template <class X> constexpr bool same<X, X> = true;
constexpr bool ASYNC = STAGES > 1 && same<A, SUM> && same<B, SUM>;
constexpr int BUFFERS = ASYNC ? STAGES : 2;

// An operand's tile. Chunks of EACH neighbours in memory are brought; neighbouring threads bring neighbouring chunks.
// Chunks along k stay so, [SIDE][DEPTH]; all else is [DEPTH][SIDE].
template <int SIDE, bool ALONG_K, bool WHOLE> struct Tile {
  static constexpr bool TURNED = ALONG_K && WHOLE;
  static constexpr int NEXT = WHOLE && !ALONG_K ? 4 : 1; // neighbours along the side
  static constexpr int EACH = WHOLE ? 4 : 1, LINE = (ALONG_K ? DEPTH : SIDE) / EACH, CHUNKS = SIDE * DEPTH / EACH;
  static constexpr int COUNT = (CHUNKS + THREADS - 1) / THREADS;
  static constexpr int PLACES = ALONG_K || THREADS % LINE ? COUNT : 1; // of the chunks along the side
  static constexpr int PAD = TF32 && !TURNED ? 8 : 4; // so that a warp reads each bank once
  static constexpr int SIZE = TURNED ? SIDE * (DEPTH + PAD) : DEPTH * (SIDE + PAD);
  static_assert(LINE * EACH == (ALONG_K ? DEPTH : SIDE) && (CHUNKS < THREADS || CHUNKS % THREADS == 0), "");
  static constexpr bool EVEN = THREADS % LINE == 0; // a thread's chunks are below each other
  __device__ static int chunk(int i) { return threadIdx.x + i * THREADS; }
  __device__ static bool mine(int i) { return CHUNKS % THREADS == 0 || chunk(i) < CHUNKS; }
  __device__ static int line(int i) { return EVEN ? threadIdx.x / LINE + i * (THREADS / LINE) : chunk(i) / LINE; }
  __device__ static int along(int i) { return (EVEN ? threadIdx.x : chunk(i)) % LINE * EACH; }
  __device__ static int side(int i) { return ALONG_K ? line(i) : along(i); }
  __device__ static int deep(int i) { return ALONG_K ? along(i) : line(i); }
  __device__ static int place(int side, int deep) { return TURNED ? side * (DEPTH + PAD) + deep : deep * (SIDE + PAD) + side; }
  __device__ static int at(int buffer, int i) { return buffer * SIZE + place(side(i), deep(i)); }
};

// What a thread adds up of a tile: TALL x WIDE sums.
template <int TALL, int WIDE> struct Scalars {
  SUM sums[TALL][WIDE] = {};
  const int across = threadIdx.x % SHARE % (COLS / WIDE), down = threadIdx.x % SHARE / (COLS / WIDE);

  // The thread's i-th row or column, ``number`` of SIDE / OWN threads: spread so that a warp reads each bank once.
  template <class Tile, int SIDE, int OWN> __device__ static int own(int number, int i) {
    constexpr int NEAR = OWN < 4 ? OWN : 4;
    return Tile::TURNED ? i * (SIDE / OWN) + number : i / NEAR * (SIDE / OWN * NEAR) + number * NEAR + i % NEAR;
  }
  // Those of AT_ONCE values of k.
  template <class Tile, int SIDE, int OWN> __device__ static void read(SUM (&to)[OWN][AT_ONCE], const SUM *tile, int number, int deep) {
    constexpr bool TURNED = Tile::TURNED;
    constexpr int RUN = TURNED ? AT_ONCE : OWN < 4 ? OWN : 4, LANES = RUN * (int)sizeof(SUM) > 16 ? 16 / (int)sizeof(SUM) : RUN;
#pragma unroll
    for (int i = 0; i < OWN; i += TURNED ? 1 : LANES)
#pragma unroll
      for (int d = 0; d < AT_ONCE; d += TURNED ? LANES : 1) {
        const auto lanes = Lanes<SUM, LANES>::read(tile + Tile::place(own<Tile, SIDE, OWN>(number, i), deep + d));
#pragma unroll
        for (int j = 0; j < LANES; ++j) to[TURNED ? i : i + j][TURNED ? d + j : d] = lanes.x[j];
      }
  }
  template <class TileA, class TileB> __device__ __forceinline__ void add(const SUM *tile_a, const SUM *tile_b, int begin) {
#pragma unroll
    for (int first = 0; first < STEPS; first += AT_ONCE) {
      SUM left[TALL][AT_ONCE], right[WIDE][AT_ONCE];
      read<TileA, ROWS>(left, tile_a, down, begin + first);
      read<TileB, COLS>(right, tile_b, across, begin + first);
#pragma unroll
      for (int d = 0; d < AT_ONCE; ++d)
#pragma unroll
        for (int i = 0; i < TALL; ++i)
#pragma unroll
          for (int j = 0; j < WIDE; ++j) sums[i][j] = fused(left[i][d], right[j][d], sums[i][j]);
    }
  }
  // Calls take(row, column, sum) for each.
  template <class TileA, class TileB, class Take> __device__ __forceinline__ void each(Take take) const {
#pragma unroll
    for (int i = 0; i < TALL; ++i)
#pragma unroll
      for (int j = 0; j < WIDE; ++j) take(own<TileA, ROWS, TALL>(down, i), own<TileB, COLS, WIDE>(across, j), sums[i][j]);
  }
};

// What a warp adds up on tensor cores, TALL x WIDE sums, of factors that are rounded to the 10 bits of TF32.
template <int TALL, int WIDE> struct Cores {
  float sums[TALL / 16][WIDE / 8][4] = {};
  const int warp = threadIdx.x % SHARE / 32, row = threadIdx.x % 32 / 4, col = threadIdx.x % 4; // of the 8 x 4 lanes
  const int down = warp / (COLS / WIDE) * TALL, across = warp % (COLS / WIDE) * WIDE;

  template <class TileA, class TileB> __device__ __forceinline__ void add(const float *tile_a, const float *tile_b, int begin) {
#pragma unroll
    for (int first = 0; first < STEPS; first += 8) {
      const int deep = begin + first + col;
      unsigned left[TALL / 16][4], right[WIDE / 8][2];
#pragma unroll
      for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) left[i][r] = tf32(tile_a[TileA::place(down + i * 16 + row + r % 2 * 8, deep + r / 2 * 4)]);
#pragma unroll
      for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) right[j][r] = tf32(tile_b[TileB::place(across + j * 8 + row, deep + r * 4)]);
#pragma unroll
      for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
        for (int j = 0; j < WIDE / 8; ++j) {
          float(&d)[4] = sums[i][j];
          asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                       "{%0, %1, %2, %3};"
                       : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                       : "r"(left[i][0]), "r"(left[i][1]), "r"(left[i][2]), "r"(left[i][3]), "r"(right[j][0]), "r"(right[j][1]));
        }
    }
  }
  template <class TileA, class TileB, class Take> __device__ __forceinline__ void each(Take take) const {
#pragma unroll
    for (int i = 0; i < TALL / 16; ++i)
#pragma unroll
      for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) take(down + i * 16 + row + r / 2 * 8, across + j * 8 + col * 2 + r % 2, sums[i][j][r]);
  }
};

template <bool, class X, class> struct Either { using type = X; };
template <class X, class Y> struct Either<false, X, Y> { using type = Y; };
using Share = Either<TF32, Cores<TALL, WIDE>, Scalars<TALL, WIDE>>::type;

// EACH elements to shared memory, 0 where they are not there; done when their group is waited for.
// ``From`` is T where this runs; a kernel that is no template must know it for other types, too.
template <int EACH, class T, class From> __device__ __forceinline__ void copy(T *to, const From *from, bool there) {
  constexpr int BYTES = EACH * sizeof(T);
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(there ? BYTES : 0));
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const A *__restrict__ a, const B *__restrict__ b, OTHERS C *__restrict__ c,
                                                                  NUMBERS) {
  const Numbers s = GIVEN;
  using TileA = Tile<ROWS, A_ALONG_K, WHOLE_A && ASYNC>;
  using TileB = Tile<COLS, B_ALONG_K, WHOLE_B && ASYNC>;
  constexpr int TILES = BUFFERS * (TileA::SIZE + TileB::SIZE), SUMS = SLICES > 1 ? SLICES * ROWS * COLS : 0;
  __shared__ alignas(16) SUM memory[TILES > SUMS ? TILES : SUMS];
  SUM *const tiles_a = memory, *const tiles_b = memory + BUFFERS * TileA::SIZE;
  const int thread = threadIdx.x;
  const int tiles_m = (s.M + ROWS - 1) / ROWS;
  const int m_first = blockIdx.x % tiles_m * ROWS, n_first = blockIdx.x / tiles_m * COLS;
  const int part = blockIdx.y, z = blockIdx.z;
  const int k_first = part * s.PART, k_last = min(s.K, k_first + s.PART);

  PlaceA rows_a[TileA::PLACES];
  PlaceB rows_b[TileB::PLACES];
#pragma unroll
  for (int i = 0; i < TileA::PLACES; ++i) rows_a[i] = a_row(s, z, min(m_first + TileA::side(i), s.M - TileA::NEXT));
#pragma unroll
  for (int i = 0; i < TileB::PLACES; ++i) rows_b[i] = b_row(s, z, min(n_first + TileB::side(i), s.N - TileB::NEXT));

  wait_for_those_before();
  SUM held_a[TileA::COUNT], held_b[TileB::COUNT]; // unless ASYNC
  // What lies outside of c is not read: in a tile with few columns, most threads would read the last one, all of one line.
  auto fetch = [&](int k, int buffer) {
#pragma unroll
    for (int i = 0; i < TileA::COUNT; ++i) {
      const int at = k + TileA::deep(i);
      const bool there = at < k_last && m_first + TileA::side(i) < s.M;
      const INDEX place = there ? a_place(s, rows_a[i % TileA::PLACES], a_step(s, at)) : INDEX(-1);
      if constexpr (!ASYNC)
        held_a[i] = place >= 0 ? wide(a[place]) : SUM(0);
      else if (TileA::mine(i))
        copy<TileA::EACH>(tiles_a + TileA::at(buffer, i), a + max(place, INDEX(0)), place >= 0);
    }
#pragma unroll
    for (int i = 0; i < TileB::COUNT; ++i) {
      const int at = k + TileB::deep(i);
      const bool there = at < k_last && n_first + TileB::side(i) < s.N;
      const INDEX place = there ? b_place(s, rows_b[i % TileB::PLACES], b_step(s, at)) : INDEX(-1);
      if constexpr (!ASYNC)
        held_b[i] = place >= 0 ? wide(b[place]) : SUM(0);
      else if (TileB::mine(i))
        copy<TileB::EACH>(tiles_b + TileB::at(buffer, i), b + max(place, INDEX(0)), place >= 0);
    }
  };
  auto put = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < TileA::COUNT; ++i)
      if (TileA::mine(i)) tiles_a[TileA::at(buffer, i)] = held_a[i];
#pragma unroll
    for (int i = 0; i < TileB::COUNT; ++i)
      if (TileB::mine(i)) tiles_b[TileB::at(buffer, i)] = held_b[i];
  };

  const int slice = thread / SHARE;
  Share share;
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
    const SUM *const tile_a = tiles_a + buffer * TileA::SIZE, *const tile_b = tiles_b + buffer * TileB::SIZE;
    share.template add<TileA, TileB>(tile_a, tile_b, slice * STEPS);
    if constexpr (!ASYNC) {
      if (next < tiles) put(next % BUFFERS);
    }
  }
  auto write = [&](int row, int col, SUM sum) {
    const int m = m_first + row, n = n_first + col;
    if (m < s.M && n < s.N) {
      const INDEX at = c_place(s, z, m, n);
      store(c + part * s.TOTAL + at, FINISHED(at, sum));
    }
  };
  if constexpr (SLICES > 1) {
    if constexpr (ASYNC) asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); // the tiles are read
    share.template each<TileA, TileB>([&](int row, int col, SUM sum) { memory[(slice * ROWS + row) * COLS + col] = sum; });
    __syncthreads();
    for (int e = thread; e < ROWS * COLS; e += THREADS) {
      SUM sum = memory[e];
#pragma unroll
      for (int other = 1; other < SLICES; ++other) sum += memory[other * ROWS * COLS + e];
      write(e / COLS, e % COLS, sum);
    }
  } else {
    share.template each<TileA, TileB>(write);
  }
}
