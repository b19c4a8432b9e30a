// The gradient of a depthwise convolution for its weights, in parts: for each channel and tap the sum over images and pixels
// of x times dy. A thread walks over pieces of PIXELS neighbours along the last axis of dy, for LANES adjacent channels, and
// keeps the sums of LINES lines of taps; blockIdx.z says which. Then the rows of a block are added, the upper half to the
// lower half until one is left: parts[blockIdx.y, channel, tap]. OWN: the spatial sizes of dy, OTHER: of x.

constexpr int ALL_TAPS = TAPS[0] * TAPS[1] * TAPS[2];

__device__ constexpr int offset_of(int p, int j) { return p * STRIDE[2] - EDGE[2] + j * GAP[2]; }

__device__ __forceinline__ int source(int axis, int own, int tap, int size) {
  const int at = own * STRIDE[axis] - EDGE[axis] + tap * GAP[axis];
  return (unsigned)at < (unsigned)size ? at : -1;
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(
    const X *__restrict__ x, const X *__restrict__ dy, SUM *__restrict__ parts, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ SUM held[256 * LANES];
  const int row = quotient((int)threadIdx.x, s.WIDTH_magic, s.WIDTH_shift), column = (int)threadIdx.x - row * s.WIDTH;
  const int channel = (blockIdx.x * s.WIDTH + column) * LANES;
  const bool here = row < s.ROWS && channel < s.CHANNELS;

  SUM sums[LINES][TAPS[2]][LANES] = {};
  for (int item = blockIdx.y * s.ROWS + row; here && item < s.ITEMS; item += gridDim.y * s.ROWS) {
    const int line = quotient(item, s.CHUNKS_magic, s.CHUNKS_shift), sheet = quotient(line, s.OWN1_magic, s.OWN1_shift);
    const int image = quotient(sheet, s.OWN0_magic, s.OWN0_shift);
    const int at0 = sheet - image * s.OWN0, at1 = line - sheet * s.OWN1, at2 = (item - line * s.CHUNKS) * PIXELS;
#if LAST
    const int plane = image, inner = channel;
#else
    const int plane = image * s.CHANNELS + channel, inner = 0;
#endif
    const int step = LAST ? s.CHANNELS : 1;
    const X *given = dy + ((((INDEX)plane * s.OWN0 + at0) * s.OWN1 + at1) * s.OWN2 + at2) * step + inner;
    Lanes<X, LANES> zero = {}, up[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) up[p] = at2 + p < s.OWN2 ? Lanes<X, LANES>::read(given + (INDEX)p * step) : zero;
#pragma unroll
    for (int i = 0; i < LINES; ++i) {
      const int tap = blockIdx.z * LINES + i;
      const int from0 = source(0, at0, tap / TAPS[1], s.OTHER0), from1 = source(1, at1, tap % TAPS[1], s.OTHER1);
      const bool there = from0 >= 0 && from1 >= 0;
      if (!AHEAD && !there) continue; // else zeros, without a branch, so that lines are read ahead
      const int size = there ? s.OTHER2 : 0;
      const X *seen = x + (((INDEX)plane * s.OTHER0 + max(from0, 0)) * s.OTHER1 + max(from1, 0)) * s.OTHER2 * step + inner;
      Lanes<X, LANES> read[SPAN];
#pragma unroll
      for (int n = 0; n < SPAN; ++n) {
        const int at = at2 * STRIDE[2] + LOWEST + n;
        read[n] = (unsigned)at < (unsigned)size ? Lanes<X, LANES>::read(seen + (INDEX)at * step) : zero;
      }
#pragma unroll
      for (int j = 0; j < TAPS[2]; ++j)
#pragma unroll
        for (int p = 0; p < PIXELS; ++p)
#pragma unroll
          for (int l = 0; l < LANES; ++l)
            sums[i][j][l] = fused(wide(read[offset_of(p, j) - LOWEST].x[l]), wide(up[p].x[l]), sums[i][j][l]);
    }
  }

#pragma unroll
  for (int i = 0; i < LINES; ++i) {
    const int tap = (blockIdx.z * LINES + i) * TAPS[2];
#pragma unroll
    for (int j = 0; j < TAPS[2]; ++j) {
      __syncthreads(); // the sums of the tap before have been read
#pragma unroll
      for (int l = 0; l < LANES; ++l)
        if (row < s.ROWS) held[(row * s.WIDTH + column) * LANES + l] = sums[i][j][l];
      for (int half = s.ROWS / 2; half; half /= 2) {
        __syncthreads();
        if (row < half)
#pragma unroll
          for (int l = 0; l < LANES; ++l) {
            sums[i][j][l] += held[((row + half) * s.WIDTH + column) * LANES + l];
            held[(row * s.WIDTH + column) * LANES + l] = sums[i][j][l];
          }
      }
      if (row == 0 && here && tap < ALL_TAPS)
#pragma unroll
        for (int l = 0; l < LANES; ++l)
          parts[((INDEX)blockIdx.y * s.CHANNELS + channel + l) * ALL_TAPS + tap + j] = sums[i][j][l];
    }
  }
}
