// A convolution whose result has FEW channels, or the gradient for an image of few (BACK): sums over the taps and many channels.
// Each element of the image with many channels is read about once. FINISHED(at, x) is what is stored for the sum x of place ``at``.
#include "few_channels.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) KERNEL(
    const X *__restrict__ x, const X *__restrict__ w, OTHERS X *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ __align__(16) SUM weights[ALL_TAPS * FEW][KEPT];
#if !LAST
  __shared__ SUM held[PIXELS * FEW][256];
#endif
  const int row = row_of(threadIdx.x), column = column_of(threadIdx.x);
  const INDEX step = LAST ? (INDEX)s.CHANNELS : (INDEX)s.OTHER0 * s.OTHER1 * s.OTHER2;

  for (int turn = blockIdx.x; turn * ROWS < s.ITEMS; turn += gridDim.x) {
    asm volatile("" ::: "memory"); // weights stay in shared memory: registers do not hold them from turn to turn
    const int item = turn * ROWS + row;
    const bool here = item < s.ITEMS;
    const Piece piece = piece_of(s, here ? item : 0);
    SUM sums[PIXELS * FEW] = {};
    for (int first = 0; first < s.CHANNELS; first += KEPT) {
      if (turn == blockIdx.x || KEPT < s.CHANNELS) { // else the weights are those of the turn before
        __syncthreads();
        keep_weights<KEPT>(weights, w, s, first);
        __syncthreads();
      }
      for (int c = column * LANES; here && c < KEPT && first + c < s.CHANNELS; c += WIDTH * LANES)
#pragma unroll(UNROLLED)
        for (int i = 0; i < TAP_LINES; ++i) {
          const int from0 = source(0, piece.at0, i / TAPS[1], s.OTHER0), from1 = source(1, piece.at1, i % TAPS[1], s.OTHER1);
          const bool there = from0 >= 0 && from1 >= 0;
          if (SKIPS && !there) continue;
          const X *line = x + line_at(piece.plane, first + c, s.CHANNELS, max(from0, 0), max(from1, 0), s.OTHER0, s.OTHER1, s.OTHER2);
          SUM seen[SPAN][LANES];
          read_line<SPAN, LANES, VECTOR, SHIFT>(seen, line, piece.base + LOWEST, there ? s.OTHER2 : 0, step);
#pragma unroll
          for (int j = 0; j < TAPS[2]; ++j)
#pragma unroll
            for (int f = 0; f < FEW; ++f) {
              const Lanes<SUM, LANES> weight = Lanes<SUM, LANES>::read(&weights[(i * TAPS[2] + j) * FEW + f][c]);
#pragma unroll
              for (int l = 0; l < LANES; ++l)
#pragma unroll
                for (int p = 0; p < PIXELS; ++p)
                  if (reads(p, j)) sums[p * FEW + f] = fused(seen[offset_of(p, j) - LOWEST][l], weight.x[l], sums[p * FEW + f]);
            }
        }
    }

#if LAST
    using All = Together<PIXELS * FEW, WIDTH / 2, 1>;
    constexpr int COUNT = All::HELD, EVERY = 1;
    const int begin = All::add(sums, 0);
    const bool writes = here && !(threadIdx.x & All::SAME);
#else
    constexpr int COUNT = (PIXELS * FEW + WIDTH - 1) / WIDTH, EVERY = WIDTH;
    const int begin = column;
    const bool writes = here;
    __syncthreads(); // the sums of the turn before have been read
#pragma unroll
    for (int k = 0; k < PIXELS * FEW; ++k) held[k][threadIdx.x] = sums[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      SUM sum = 0;
      if (begin + k * EVERY < PIXELS * FEW)
        for (int other = 0; other < WIDTH; ++other) sum += held[begin + k * EVERY][other * ROWS + row];
      sums[k] = sum;
    }
#endif
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int at = begin + k * EVERY, place = piece.at2 + at / FEW;
      if (!writes || at >= PIXELS * FEW || place >= s.OWN2) continue;
      const INDEX whole = line_at(piece.plane, at % FEW, FEW, piece.at0, piece.at1, s.OWN0, s.OWN1, s.OWN2);
      const INDEX to = whole + place * (LAST ? FEW : 1);
      store(y + to, FINISHED(to, sums[k]));
    }
  }
}
