// How far x is from r, where the difference of an element counts in units of |r|, but of no less than usual: each block
// writes the largest, the sum of the squares of all, the sum of the squares of |r| in the same units, and the number of
// elements of which only one is finite or that are other infinities. These count in the last alone.
__device__ __forceinline__ double larger(double a, double b) { return a > b ? a : b; }

__device__ __forceinline__ bool finite(double a) { return a - a == 0.0; }

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, const T *__restrict__ r,
                                                             double *__restrict__ parts, const long long count,
                                                             const double usual) {
  wait_for_those_before();
  const double inverse = 1.0 / usual;
  double most = 0.0, apart = 0.0, whole = 0.0, strange = 0.0;
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
    const double a = value(x[i]), b = value(r[i]);
    if (finite(a) && finite(b)) {
      const double size = b < 0.0 ? -b : b, far = a > b ? a - b : b - a;
      const double part = size < usual ? size * inverse : 1.0;
      whole += part * part;
      if (far != 0.0) {
        const double error = size < usual ? far * inverse : far / size;
        most = larger(most, error);
        apart += error * error;
      }
    } else if (a != b && (a == a || b == b)) {
      strange += 1.0;
    }
  }
  __shared__ double held[4][THREADS];
  held[0][threadIdx.x] = most;
  held[1][threadIdx.x] = apart;
  held[2][threadIdx.x] = whole;
  held[3][threadIdx.x] = strange;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      held[0][threadIdx.x] = larger(held[0][threadIdx.x], held[0][threadIdx.x + half]);
      for (int k = 1; k < 4; ++k) held[k][threadIdx.x] += held[k][threadIdx.x + half];
    }
  }
  __syncthreads();
  if (threadIdx.x < 4) parts[4 * blockIdx.x + threadIdx.x] = held[threadIdx.x][0];
}
