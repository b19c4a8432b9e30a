// A convolution of an image of FEW channels, or the gradient for an image of many (BACK) from a result of few: each thread
// writes PIXELS x LANES elements. FINISHED(at, x) is what is stored for the sum x of place ``at``.
#include "few_channels.cuh"

extern "C" __global__ void __launch_bounds__(256, 2) KERNEL(
    const X *__restrict__ x, const X *__restrict__ w, OTHERS X *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ __align__(16) SUM weights[ALL_TAPS * FEW][WIDTH * LANES];
  const int first = blockIdx.y * WIDTH * LANES, column = column_of(threadIdx.x) * LANES, channel = first + column;
  const INDEX step = LAST ? (INDEX)FEW : (INDEX)s.OTHER0 * s.OTHER1 * s.OTHER2;
  keep_weights<WIDTH * LANES>(weights, w, s, first);
  __syncthreads();
  if (channel >= s.CHANNELS) return;

  for (int item = blockIdx.x * ROWS + row_of(threadIdx.x); item < s.ITEMS; item += gridDim.x * ROWS) {
    asm volatile("" ::: "memory"); // weights stay in shared memory: registers do not hold them from turn to turn
    const Piece piece = piece_of(s, item);
    SUM sums[PIXELS][LANES] = {};
#pragma unroll(UNROLLED)
    for (int i = 0; i < TAP_LINES; ++i) {
      const int from0 = source(0, piece.at0, i / TAPS[1], s.OTHER0), from1 = source(1, piece.at1, i % TAPS[1], s.OTHER1);
      const bool there = from0 >= 0 && from1 >= 0;
      if (SKIPS && !there) continue;
      const X *line = x + line_at(piece.plane, 0, FEW, max(from0, 0), max(from1, 0), s.OTHER0, s.OTHER1, s.OTHER2);
      SUM seen[SPAN][FEW];
      read_line<SPAN, FEW, VECTOR, SHIFT>(seen, line, piece.base + LOWEST, there ? s.OTHER2 : 0, step);
#pragma unroll
      for (int j = 0; j < TAPS[2]; ++j)
#pragma unroll
        for (int f = 0; f < FEW; ++f) {
          const Lanes<SUM, LANES> weight = Lanes<SUM, LANES>::read(&weights[(i * TAPS[2] + j) * FEW + f][column]);
#pragma unroll
          for (int p = 0; p < PIXELS; ++p)
            if (reads(p, j))
#pragma unroll
              for (int l = 0; l < LANES; ++l) sums[p][l] = fused(seen[offset_of(p, j) - LOWEST][f], weight.x[l], sums[p][l]);
        }
    }

    const INDEX whole = line_at(piece.plane, channel, s.CHANNELS, piece.at0, piece.at1, s.OWN0, s.OWN1, s.OWN2);
#if LAST
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
      if (piece.at2 + p >= s.OWN2) break;
      const INDEX to = whole + (INDEX)(piece.at2 + p) * s.CHANNELS;
      Lanes<X, LANES> made;
#pragma unroll
      for (int l = 0; l < LANES; ++l) store(made.x + l, FINISHED(to + l, sums[p][l]));
      made.write(y + to);
    }
#else
    const INDEX plane = (INDEX)s.OWN0 * s.OWN1 * s.OWN2;
#pragma unroll
    for (int l = 0; l < LANES; ++l)
#pragma unroll
      for (int p = 0; p < PIXELS; p += OWN_VECTOR) {
        if (piece.at2 + p >= s.OWN2) break;
        const INDEX to = whole + l * plane + piece.at2 + p;
        Lanes<X, OWN_VECTOR> made;
#pragma unroll
        for (int n = 0; n < OWN_VECTOR; ++n) store(made.x + n, FINISHED(to + n, sums[p + n][l]));
        made.write(y + to);
      }
#endif
  }
}
