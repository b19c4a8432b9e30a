// Pooling over three spatial axes (the first ones of size 1 where there are fewer), one element of the result a thread.
// The gradients gather: an element of the image looks at every window that holds it, in one order, so that nothing is
// added by two threads. X is what is read, Y what is written; the text in front says the sizes.

struct Spot {
  long long plane;
  int at[3], channel;
};

__device__ __forceinline__ Spot spot(long long element, const int (&size)[3]) {
  Spot s;
  s.channel = (int)(element % CHANNELS);
  element /= CHANNELS;
  s.at[2] = (int)(element % size[2]);
  element /= size[2];
  s.at[1] = (int)(element % size[1]);
  element /= size[1];
  s.at[0] = (int)(element % size[0]);
  s.plane = element / size[0];
  return s;
}

__device__ __forceinline__ long long place_in(const Spot &s, const int (&at)[3], const int (&size)[3]) {
  return (((s.plane * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2]) * CHANNELS + s.channel;
}

// Calls f(tap, place in the image) for each tap of a window that is inside of the image, in order.
template <class F> __device__ __forceinline__ void taps_of(const Spot &window, F f) {
  int tap = 0;
#pragma unroll
  for (int i = 0; i < TAPS[0]; ++i)
#pragma unroll
    for (int j = 0; j < TAPS[1]; ++j)
#pragma unroll
      for (int k = 0; k < TAPS[2]; ++k, ++tap) {
        int at[3] = {window.at[0] * STRIDE[0] + i - EDGE[0], window.at[1] * STRIDE[1] + j - EDGE[1],
                     window.at[2] * STRIDE[2] + k - EDGE[2]};
        if ((unsigned)at[0] < (unsigned)IMAGE[0] && (unsigned)at[1] < (unsigned)IMAGE[1] && (unsigned)at[2] < (unsigned)IMAGE[2])
          f(tap, place_in(window, at, IMAGE));
      }
}

// Calls f(tap, place among the windows) for each window that holds an element of the image, in order of the taps.
template <class F> __device__ __forceinline__ void windows_of(const Spot &element, F f) {
  int tap = 0;
#pragma unroll
  for (int i = 0; i < TAPS[0]; ++i)
#pragma unroll
    for (int j = 0; j < TAPS[1]; ++j)
#pragma unroll
      for (int k = 0; k < TAPS[2]; ++k, ++tap) {
        int from[3] = {element.at[0] + EDGE[0] - i, element.at[1] + EDGE[1] - j, element.at[2] + EDGE[2] - k};
        int at[3] = {from[0] / STRIDE[0], from[1] / STRIDE[1], from[2] / STRIDE[2]};
        bool whole = from[0] >= 0 && from[1] >= 0 && from[2] >= 0 && from[0] % STRIDE[0] == 0 && from[1] % STRIDE[1] == 0 &&
                     from[2] % STRIDE[2] == 0;
        if (whole && at[0] < COUNT[0] && at[1] < COUNT[1] && at[2] < COUNT[2]) f(tap, place_in(element, at, COUNT));
      }
}

#if MODE == 0 // the largest and its place: the first of equal ones; nan counts as largest
extern "C" __global__ void KERNEL(const X *__restrict__ x, X *__restrict__ y, Y *__restrict__ place) {
  for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < ELEMENTS; e += (long long)gridDim.x * blockDim.x) {
    SUM best = 0;
    int taken = -1;
    taps_of(spot(e, COUNT), [&](int tap, long long at) {
      SUM value = wide(x[at]);
      if (taken < 0 || (!(value <= best) && best == best)) best = value, taken = tap;
    });
    store(y + e, best);
    place[e] = (Y)max(taken, 0);
  }
}
#elif MODE == 1 // dx: the sum of dy of the windows that took this element
extern "C" __global__ void KERNEL(const X *__restrict__ dy, const Y *__restrict__ place, X *__restrict__ dx) {
  for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < ELEMENTS; e += (long long)gridDim.x * blockDim.x) {
    SUM sum = 0;
    windows_of(spot(e, IMAGE), [&](int tap, long long at) {
      if ((int)place[at] == tap) sum += wide(dy[at]);
    });
    store(dx + e, sum);
  }
}
#elif MODE == 2 // the mean of a window, zeros around the image counted
extern "C" __global__ void KERNEL(const X *__restrict__ x, X *__restrict__ y) {
  for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < ELEMENTS; e += (long long)gridDim.x * blockDim.x) {
    SUM sum = 0;
    taps_of(spot(e, COUNT), [&](int tap, long long at) { sum += wide(x[at]); });
    store(y + e, sum / SUM(TAPS[0] * TAPS[1] * TAPS[2]));
  }
}
#else // the gradient of the mean
extern "C" __global__ void KERNEL(const X *__restrict__ dy, X *__restrict__ dx) {
  for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < ELEMENTS; e += (long long)gridDim.x * blockDim.x) {
    SUM sum = 0;
    windows_of(spot(e, IMAGE), [&](int tap, long long at) { sum += wide(dy[at]); });
    store(dx + e, sum / SUM(TAPS[0] * TAPS[1] * TAPS[2]));
  }
}
#endif
