// Depthwise convolution, or its gradient for x (BACK): the sum over the taps of one channel. A thread computes PIXELS
// neighbours along the last spatial axis, each for LANES adjacent channels, and reads every element of a line of the image
// that they need once. Where it reads is known when this is compiled, but for the first place: element ``base + offset``,
// where base depends on the thread. Three spatial axes (the first ones of size 1 if there are fewer). OWN: sizes of the side
// that is written, OTHER: of the side that is read. FINISHED(at, x) is what is stored for the sum x of place ``at``.
// If threads are FEW, TOGETHER lines are read before their products, the first of them before the weights.
//
// With channels last, a block computes WIDTH groups of LANES channels; their weights are in shared memory, the taps of
// adjacent channels next to each other, ROW apart from the next tap. With channels first, a plane is one channel of an image.

constexpr int ALL_TAPS = TAPS[0] * TAPS[1] * TAPS[2], LINES = TAPS[0] * TAPS[1];
constexpr int UNDER_WAY = ALL_TAPS * ROW > 7 * 256 ? 8 : (ALL_TAPS * ROW + 255) / 256; // reads of weights by a thread at once
// With AHEAD or FEW, lines of taps outside of the image are read as zeros, without a branch, so that lines are read ahead, but for
// those between the places that a stride leaves out.
constexpr bool SKIPS = !(AHEAD || FEW) || (BACK && STRIDE[0] * STRIDE[1] > 1);

#include "windows.cuh"
extern "C" __global__ void __launch_bounds__(256) KERNEL(
    const X *__restrict__ x, const X *__restrict__ w, OTHERS X *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
#if LAST
  const int row = quotient((int)threadIdx.x, s.WIDTH_magic, s.WIDTH_shift), column = ((int)threadIdx.x - row * s.WIDTH) * LANES;
  const int first = blockIdx.y * s.WIDTH * LANES, channel = first + column;
#else
  const int row = threadIdx.x, channel = 0;
#endif
  const int item = (int)blockIdx.x * s.ROWS + row;
  const bool here = row < s.ROWS && item < s.ITEMS && channel < s.CHANNELS;
#if LAST
  __shared__ SUM weights[ALL_TAPS][ROW];
#endif
  const auto keep_weights = [&] {
#if LAST
    const int kept = min(s.WIDTH * LANES, s.CHANNELS - first) * ALL_TAPS;
    for (int from = threadIdx.x; from - (int)threadIdx.x < kept; from += UNDER_WAY * blockDim.x) {
      X read[UNDER_WAY] = {};
#pragma unroll
      for (int u = 0; u < UNDER_WAY; ++u) {
        const int n = from + u * blockDim.x;
        if (n < kept) read[u] = w[(INDEX)first * ALL_TAPS + n];
      }
#pragma unroll
      for (int u = 0; u < UNDER_WAY; ++u) {
        const int n = from + u * blockDim.x, c = n / ALL_TAPS;
        if (n < kept) weights[n - c * ALL_TAPS][c] = wide(read[u]);
      }
    }
    __syncthreads();
#endif
  };
  if (!FEW) {
    keep_weights();
    if (!here) return;
  }
  const int line = quotient(item, s.CHUNKS_magic, s.CHUNKS_shift), sheet = quotient(line, s.OWN1_magic, s.OWN1_shift);
  const int plane = quotient(sheet, s.OWN0_magic, s.OWN0_shift);
  const int at0 = sheet - plane * s.OWN0, at1 = line - sheet * s.OWN1, at2 = (item - line * s.CHUNKS) * PIXELS;
  const int base = BACK ? at2 / STRIDE[2] : at2 * STRIDE[2];

  // Reads TOGETHER lines of the image, for the lines of taps from i on. False if line i is outside of the image and SKIPS.
  Lanes<X, LANES> seen[TOGETHER][SPAN];
  const auto read = [&](int i) {
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
      const int tap0 = (i + k) / TAPS[1], tap1 = (i + k) % TAPS[1];
      const int from0 = source(0, at0, tap0, s.OTHER0), from1 = source(1, at1, tap1, s.OTHER1);
      const bool there = here && from0 >= 0 && from1 >= 0;
      if (SKIPS && !there) return false;
      const int size = there ? s.OTHER2 : 0;
      const INDEX above = ((INDEX)plane * s.OTHER0 + max(from0, 0)) * s.OTHER1 + max(from1, 0);
      const X *image = x + above * s.OTHER2 * s.CHANNELS + channel;
      const INDEX lowest = (above * s.OTHER2 + base + LOWEST) * s.CHANNELS + channel; // fewer instructions, but more registers
#pragma unroll
      for (int n = 0; n < SPAN; ++n) {
        const int at = base + LOWEST + n;
        Lanes<X, LANES> zero = {};
        seen[k][n] = (unsigned)at >= (unsigned)size ? zero
                     : FEW                         ? Lanes<X, LANES>::read(x + (lowest + n * s.CHANNELS))
                                                   : Lanes<X, LANES>::read(image + (INDEX)at * s.CHANNELS);
      }
    }
    return true;
  };
  if (FEW) {
    read(0);
    keep_weights();
    if (!here) return;
  }
#if !LAST
  const X *own = w + (plane - quotient(plane, s.EVERY_magic, s.EVERY_shift) * s.EVERY) * ALL_TAPS;
#endif

  SUM sums[PIXELS][LANES] = {};
#pragma unroll(UNROLLED)
  for (int i = 0; i < LINES; i += TOGETHER) {
    if ((!FEW || i > 0) && !read(i)) continue;
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
      if (LINES % TOGETHER && i + k >= LINES) break;
#pragma unroll
      for (int j = 0; j < TAPS[2]; ++j) {
        SUM weight[LANES];
#pragma unroll
        for (int l = 0; l < LANES; ++l)
#if LAST
          weight[l] = weights[(i + k) * TAPS[2] + j][column + l];
#else
          weight[l] = wide(own[(i + k) * TAPS[2] + j]);
#endif
#pragma unroll
        for (int p = 0; p < PIXELS; ++p)
          if (reads(p, j))
#pragma unroll
            for (int l = 0; l < LANES; ++l)
              sums[p][l] = fused(wide(seen[k][offset_of(p, j) - LOWEST].x[l]), weight[l], sums[p][l]);
      }
    }
  }

#pragma unroll
  for (int p = 0; p < PIXELS; ++p) {
    if (at2 + p >= s.OWN2) break;
    const INDEX to = ((((INDEX)plane * s.OWN0 + at0) * s.OWN1 + at1) * s.OWN2 + at2 + p) * s.CHANNELS + channel;
    Lanes<X, LANES> made;
#pragma unroll
    for (int l = 0; l < LANES; ++l) store(made.x + l, FINISHED(to + l, sums[p][l]));
    made.write(y + to);
  }
}
