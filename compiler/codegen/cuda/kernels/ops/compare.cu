// How far x is from r. Each block writes: the largest |x - r| - unit * |r|, or 0; the sum of (x - r)^2; that of r^2; the
// number of elements of which only one is finite or that are other infinities; the number of those where |x - r| is more
// than far * |r|, and the number of those where r is not 0. Elements that are not finite count in the fourth alone.
__device__ __forceinline__ double larger(double a, double b) { return a > b ? a : b; }

__device__ __forceinline__ bool finite(double a) { return a - a == 0.0; }

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, const T *__restrict__ r,
                                                             double *__restrict__ parts, const long long count,
                                                             const double unit, const double far) {
  wait_for_those_before();
  double found[PARTS] = {};
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
    const double a = value(x[i]), b = value(r[i]);
    if (finite(a) && finite(b)) {
      const double size = b < 0.0 ? -b : b, apart = a > b ? a - b : b - a;
      found[0] = larger(found[0], apart - unit * size);
      found[1] += apart * apart;
      found[2] += b * b;
      found[4] += b != 0.0 && apart > far * size ? 1.0 : 0.0;
      found[5] += b != 0.0 ? 1.0 : 0.0;
    } else if (a != b && (a == a || b == b)) {
      found[3] += 1.0;
    }
  }
  __shared__ double held[PARTS][THREADS];
#pragma unroll
  for (int k = 0; k < PARTS; ++k) held[k][threadIdx.x] = found[k];
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      held[0][threadIdx.x] = larger(held[0][threadIdx.x], held[0][threadIdx.x + half]);
      for (int k = 1; k < PARTS; ++k) held[k][threadIdx.x] += held[k][threadIdx.x + half];
    }
  }
  __syncthreads();
  if (threadIdx.x < PARTS) parts[PARTS * blockIdx.x + threadIdx.x] = held[threadIdx.x][0];
}
