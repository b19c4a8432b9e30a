// The gradient for the weights of a convolution between FEW channels and many, in parts: for each tap and pair of channels the
// sum over images and pixels. A thread walks along pieces of the side with many channels and keeps the sums of LINES lines of
// taps with FEW of EVERY few channels; blockIdx.z says which. Then the rows of a block are added, in a fixed order: parts[blockIdx.y, weight].
#include "few_channels.cuh"

extern "C" __global__ void __launch_bounds__(256) KERNEL(
    const X *__restrict__ many, const X *__restrict__ few, SUM *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int COUNT = TAPS[2] * FEW * LANES, WARPS = 256 / 32; // of sums of a line of taps
  constexpr int ACROSS = LAST ? WIDTH : 1, DOWN = LAST ? WARPS : ROWS / 32; // columns of a warp, warps of a column
  __shared__ SUM held[WARPS][ACROSS * COUNT];
  const int first = blockIdx.x * WIDTH * LANES, column = column_of(threadIdx.x);
  const int channel = first + column * LANES, row = row_of(threadIdx.x);
  const INDEX step = LAST ? (INDEX)s.CHANNELS : (INDEX)s.OWN0 * s.OWN1 * s.OWN2;
  const INDEX few_step = LAST ? (INDEX)EVERY : (INDEX)s.OTHER0 * s.OTHER1 * s.OTHER2;

  const int turn = blockIdx.z / RUNS * LINES, run = blockIdx.z % RUNS * FEW, begin_few = min(run, EVERY - FEW);

  SUM sums[LINES][COUNT] = {};
  for (int item = blockIdx.y * ROWS + row; channel < s.CHANNELS && item < s.ITEMS; item += gridDim.y * ROWS) {
    const Piece piece = piece_of(s, item);
    SUM own[PIXELS][LANES];
    const X *line = many + line_at(piece.plane, channel, s.CHANNELS, piece.at0, piece.at1, s.OWN0, s.OWN1, s.OWN2);
    read_line<PIXELS, LANES, OWN_VECTOR, 0>(own, line, piece.at2, s.OWN2, step);
#pragma unroll
    for (int i = 0; i < LINES; ++i) {
      const int tap = turn + i;
      const int from0 = source(0, piece.at0, tap / TAPS[1], s.OTHER0), from1 = source(1, piece.at1, tap % TAPS[1], s.OTHER1);
      const bool there = from0 >= 0 && from1 >= 0;
      if (SKIPS && !there) continue;
      const X *other = few + line_at(piece.plane, begin_few, EVERY, max(from0, 0), max(from1, 0), s.OTHER0, s.OTHER1, s.OTHER2);
      SUM seen[SPAN][FEW];
      read_line<SPAN, FEW, VECTOR, SHIFT>(seen, other, piece.base + LOWEST, there ? s.OTHER2 : 0, few_step);
#pragma unroll
      for (int j = 0; j < TAPS[2]; ++j)
#pragma unroll
        for (int f = 0; f < FEW; ++f)
#pragma unroll
          for (int p = 0; p < PIXELS; ++p)
            if (reads(p, j))
#pragma unroll
              for (int l = 0; l < LANES; ++l) {
                SUM &sum = sums[i][(j * FEW + f) * LANES + l];
                sum = fused(seen[offset_of(p, j) - LOWEST][f], own[p][l], sum);
              }
    }
  }

#pragma unroll
  for (int i = 0; i < LINES; ++i) {
    using All = Together<COUNT, 16, ACROSS>;
    const int begin = All::add(sums[i], 0);
    if (i) __syncthreads(); // the sums of the line before have been read
    if (!(threadIdx.x & All::SAME))
#pragma unroll
      for (int k = 0; k < All::HELD; ++k) held[threadIdx.x / 32][(LAST ? column : 0) * COUNT + begin + k] = sums[i][k];
    __syncthreads();
    const int line = turn + i;
    for (int n = threadIdx.x; n < WIDTH * COUNT && line < TAP_LINES; n += 256) {
      const int across = n / COUNT, k = n % COUNT, to = first + across * LANES + k % LANES, j = k / LANES / FEW;
      const int other = begin_few + k / LANES % FEW;
      if (to >= s.CHANNELS || other < run) continue; // the run before has it
      SUM sum = 0;
      for (int warp = 0; warp < DOWN; ++warp) sum += LAST ? held[warp][n] : held[across * DOWN + warp][k];
      const INDEX weight = (INDEX)(line * TAPS[2] + j) * s.W_TAP + (INDEX)other * s.W_FEW + (INDEX)to * s.W_MANY;
      parts[(INDEX)blockIdx.y * s.WEIGHTS + weight] = sum;
    }
  }
}
