// Writes 1 to flag if one of count values lies outside of [low, last]; else it writes nothing. The flag lies in the
// host's memory, and any number of blocks may write the same 1.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ values, volatile unsigned *flag,
                                                             const long long count, const long long low,
                                                             const long long last) {
  bool outside = false;
#pragma unroll 1  // threads in plenty keep the memory busy; the code stays short
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
    const long long value = values[i];
    outside |= value < low || value > last || (BEYOND && value < 0);  // a u64 from 2^63 on has become negative
  }
  if (outside) *flag = 1;
}
