// The lower triangle y with y y^T = (x + x^T) / 2, of matrices of COUNT rows: a block for each, that goes from column to
// column. Above the diagonal, y holds the columns as rows until the last one is done.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ x, T *y) {
  wait_for_those_before();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x += (long long)blockIdx.x * COUNT * COUNT;
  y += (long long)blockIdx.x * COUNT * COUNT;
  for (int i = warp; i < COUNT; i += THREADS / 32) {
    const long long row = (long long)i * COUNT;
    for (int j = lane; j <= i; j += 32) y[row + j] = (T)0.5 * x[row + j] + (T)0.5 * x[(long long)j * COUNT + i];
  }
  __syncthreads();
  for (int j = 0; j < COUNT; ++j) {
    T *own = y + (long long)j * COUNT;
    const T root = sqrt(own[j]);
    for (int i = j + 1 + threadIdx.x; i < COUNT; i += THREADS) {
      const T factor = y[(long long)i * COUNT + j] / root;
      y[(long long)i * COUNT + j] = factor;
      own[i] = factor;
    }
    __syncthreads();  // all have read the pivot, and the column is there
    if (threadIdx.x == 0) own[j] = root;
    for (int i = j + 1 + warp; i < COUNT; i += THREADS / 32) {
      T *row = y + (long long)i * COUNT;
      const T factor = row[j];
      for (int k = j + 1 + lane; k <= i; k += 32) row[k] -= factor * own[k];
    }
    __syncthreads();
  }
  for (int i = warp; i < COUNT; i += THREADS / 32) {
    for (int j = i + 1 + lane; j < COUNT; j += 32) y[(long long)i * COUNT + j] = 0;
  }
}
