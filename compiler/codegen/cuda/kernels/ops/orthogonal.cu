// The rows of a matrix [N, M], N <= M, made orthonormal one after the other in f64 (Gram and Schmidt, modified), by one
// block: what ops/orthogonal.py does. x are f32 numbers, [N, M] where WIDE, else [M, N]; vectors is memory for N*M doubles;
// y as x, times GAIN, rounded once to f32.

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// Of what all threads give; the same for all.
__device__ double block_sum(double x) {
  __shared__ double parts[THREADS / 32];
  x = warp_sum(x);
  __syncthreads();  // the parts of the last sum have been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(parts[threadIdx.x % 32]);
}

__device__ double length_of(const double *row) {
  double sum = 0;
  for (int e = threadIdx.x; e < M; e += THREADS) sum += row[e] * row[e];
  return sqrt(block_sum(sum));
}

// row becomes the unit vector of the axis that the rows before it cover least, the first of equals.
__device__ void put_missing(const double *vectors, double *row, int before) {
  __shared__ double least[THREADS];
  __shared__ int where[THREADS];
  double best = 1e300;
  int place = 0;
  for (int e = threadIdx.x; e < M; e += THREADS) {
    double cover = 0;
    for (int r = 0; r < before; ++r) cover += vectors[(long long)r * M + e] * vectors[(long long)r * M + e];
    if (cover < best) {
      best = cover;
      place = e;
    }
  }
  least[threadIdx.x] = best;
  where[threadIdx.x] = place;
  __syncthreads();
  for (int t = 0; t < THREADS; ++t)
    if (least[t] < best || (least[t] == best && where[t] < place)) {
      best = least[t];
      place = where[t];
    }
  for (int e = threadIdx.x; e < M; e += THREADS) row[e] = e == place;
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const float *__restrict__ x, T *__restrict__ y, double *vectors) {
  wait_for_those_before();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = warp; i < N; i += THREADS / 32) {
    double *row = vectors + (long long)i * M;
    double sum = 0;
    for (int e = lane; e < M; e += 32) {
      row[e] = x[WIDE ? (long long)i * M + e : (long long)e * N + i];
      sum += row[e] * row[e];
    }
    const double size = fmax(sqrt(warp_sum(sum)), TINY);
    for (int e = lane; e < M; e += 32) row[e] /= size;
  }
  __syncthreads();
  for (int i = 0; i < N; ++i) {
    double *row = vectors + (long long)i * M;
    double known = 1, size = length_of(row);
    while (!(size > LEAST * known)) {  // little was left: projected again
      if (!(size > TINY)) {
        put_missing(vectors, row, i);
        size = 1;
      }
      for (int r = 0; r < i; ++r) {
        const double *other = vectors + (long long)r * M;
        double sum = 0;
        for (int e = threadIdx.x; e < M; e += THREADS) sum += other[e] * row[e];
        sum = block_sum(sum);
        for (int e = threadIdx.x; e < M; e += THREADS) row[e] -= sum * other[e];
      }
      known = size;
      size = length_of(row);
    }
    for (int e = threadIdx.x; e < M; e += THREADS) row[e] /= size;
    __syncthreads();
    for (int j = i + 1 + warp; j < N; j += THREADS / 32) {
      double *later = vectors + (long long)j * M;
      double sum = 0;
      for (int e = lane; e < M; e += 32) sum += later[e] * row[e];
      sum = warp_sum(sum);
      for (int e = lane; e < M; e += 32) later[e] -= sum * row[e];
    }
    __syncthreads();
  }
  for (long long t = threadIdx.x; t < (long long)N * M; t += THREADS) {
    const long long i = t / M, e = t % M;
    store(y + (WIDE ? t : e * N + i), (decltype(wide(T())))(float)(GAIN * vectors[t]));
  }
}
