// Pooling over three spatial axes (the first ones of size 1 where there are fewer); a thread makes LANES neighbouring channels
// of one element of the result. The gradients gather: an element of the image looks at every window that holds it, in one
// order, so that nothing is added by two threads. X is what is read, Y the places in windows; the text in front says the
// window. OWN are the spatial sizes of the side that is written, OTHER of the one that is read.

struct Spot {
  int plane, at[3], channel;
};

__device__ __forceinline__ INDEX place_in(const Numbers &s, const Spot &spot, const int (&at)[3], const int (&size)[3]) {
  return (((INDEX)spot.plane * size[0] + at[0]) * size[1] + at[1]) * size[2] * s.CHANNELS + (INDEX)at[2] * s.CHANNELS +
         spot.channel;
}

// The element of this thread; false where there is none.
__device__ __forceinline__ bool found(const Numbers &s, Spot &spot) {
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= (unsigned)s.ITEMS) return false;
  const int pixel = quotient((int)item, s.PARTS_magic, s.PARTS_shift);
  const int line = quotient(pixel, s.OWN2_magic, s.OWN2_shift), sheet = quotient(line, s.OWN1_magic, s.OWN1_shift);
  const int plane = quotient(sheet, s.OWN0_magic, s.OWN0_shift);
  spot.channel = ((int)item - pixel * s.PARTS) * LANES;
  spot.at[2] = pixel - line * s.OWN2;
  spot.at[1] = line - sheet * s.OWN1;
  spot.at[0] = sheet - plane * s.OWN0;
  spot.plane = plane + blockIdx.y * s.PLANES_A_BLOCK;
  return spot.plane < s.PLANES;
}

// Calls f(step, tap, place) in order of the taps: for a window each of its places in the image, for an element of the image
// (BACK) each window that holds it.
template <class F> __device__ __forceinline__ void walk(const Numbers &s, const Spot &spot, F f) {
  const int other[3] = {s.OTHER0, s.OTHER1, s.OTHER2};
  int start[3], first[3];
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const int reach = spot.at[axis] + EDGE[axis];
    start[axis] = BACK ? reach / STRIDE[axis] : spot.at[axis] * STRIDE[axis] - EDGE[axis];
    first[axis] = BACK ? reach % STRIDE[axis] : 0;
  }
#pragma unroll
  for (int i = 0; i < STEPS[0]; ++i)
#pragma unroll
    for (int j = 0; j < STEPS[1]; ++j)
#pragma unroll
      for (int k = 0; k < STEPS[2]; ++k) {
        const int step[3] = {i, j, k};
        int at[3], tap = 0;
        bool inside = true;
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
          const int own = first[axis] + step[axis] * (BACK ? STRIDE[axis] : 1);
          at[axis] = BACK ? start[axis] - step[axis] : start[axis] + step[axis];
          tap = tap * TAPS[axis] + own;
          inside &= (unsigned)at[axis] < (unsigned)other[axis] && (!BACK || own < TAPS[axis]);
        }
        if (inside) f((i * STEPS[1] + j) * STEPS[2] + k, tap, place_in(s, spot, at, other));
      }
}

#if MODE == 0 // the largest and its place: the first of equal ones; nan counts as largest
extern "C" __global__ void KERNEL(const X *__restrict__ x, X *__restrict__ y, Y *__restrict__ place, NUMBERS) {
#elif MODE == 1 // dx: the sum of dy of the windows that took this element
extern "C" __global__ void KERNEL(const X *__restrict__ x, const Y *__restrict__ place, X *__restrict__ y, NUMBERS) {
#else // the mean of a window, zeros around the image counted; or its gradient
extern "C" __global__ void KERNEL(const X *__restrict__ x, X *__restrict__ y, NUMBERS) {
#endif
  const Numbers s = GIVEN;
  wait_for_those_before();
  Spot spot;
  if (!found(s, spot)) return;
  const int own[3] = {s.OWN0, s.OWN1, s.OWN2};
  const INDEX target = place_in(s, spot, spot.at, own);
  SUM result[LANES] = {};
#if MODE == 0
  int taken[LANES];
#pragma unroll
  for (int i = 0; i < LANES; ++i) taken[i] = -1;
#endif
#if AHEAD // with few threads: a window is read at once
  Lanes<X, LANES> window[STEPS[0] * STEPS[1] * STEPS[2]];
  walk(s, spot, [&](int step, int, INDEX at) { window[step] = Lanes<X, LANES>::read(x + at); });
#endif
  walk(s, spot, [&](int step, int tap, INDEX at) {
#if AHEAD
    const Lanes<X, LANES> given = window[step];
#else
    const Lanes<X, LANES> given = Lanes<X, LANES>::read(x + at);
#endif
#if MODE == 1
    const Lanes<Y, LANES> places = Lanes<Y, LANES>::read(place + at);
#endif
#pragma unroll
    for (int i = 0; i < LANES; ++i) {
      const SUM value = wide(given.x[i]);
#if MODE == 0
      if (taken[i] < 0 || (!(value <= result[i]) && result[i] == result[i])) result[i] = value, taken[i] = tap;
#elif MODE == 1
      if ((int)places.x[i] == tap) result[i] += value;
#else
      result[i] += value;
#endif
    }
  });
  Lanes<X, LANES> made;
#pragma unroll
  for (int i = 0; i < LANES; ++i) store(made.x + i, MODE < 2 ? result[i] : result[i] / SUM(TAPS[0] * TAPS[1] * TAPS[2]));
  made.write(y + target);
#if MODE == 0
  Lanes<Y, LANES> places;
#pragma unroll
  for (int i = 0; i < LANES; ++i) places.x[i] = (Y)max(taken[i], 0);
  places.write(place + target);
#endif
}
