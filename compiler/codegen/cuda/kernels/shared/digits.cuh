// Of the lanes `among`, those whose number has the same low BITS bits as this lane's.
template <int BITS> __device__ __forceinline__ unsigned with_same(unsigned among, int number) {
#pragma unroll
  for (int bit = 0; bit < BITS; ++bit) {
    const bool set = number >> bit & 1;
    const unsigned lanes = __ballot_sync(0xFFFFFFFFu, set);
    among &= set ? lanes : ~lanes;
  }
  return among;
}

// The sum of the values of all threads before this one, and of all.
__device__ __forceinline__ int sum_before(int own, int *warps, int &all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFu, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int at = sum - own;
  all = 0;
  for (int w = 0; w < THREADS / 32; ++w) {
    at += w < warp ? warps[w] : 0;
    all += warps[w];
  }
  return at;
}

