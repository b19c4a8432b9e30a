// x with t x = b, of triangles t of COUNT rows, where b and x have COLUMNS columns. A block has WIDTH neighbouring columns of a
// matrix: each unknown in turn is taken off the rows that are left. UPPER: the triangle above the diagonal is read;
// TRANSPOSED: t^T x = b; UNIT: the diagonal is ones. Until the end, x holds the unknowns times their diagonal.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const T *__restrict__ t, const T *__restrict__ b, T *x) {
  wait_for_those_before();
  constexpr int CHUNKS = (COLUMNS + WIDTH - 1) / WIDTH, TEAMS = THREADS / WIDTH;
  constexpr bool UPWARDS = UPPER != TRANSPOSED;
  const int team = threadIdx.x / WIDTH, column = blockIdx.x % CHUNKS * WIDTH + threadIdx.x % WIDTH;
  const long long matrix = blockIdx.x / CHUNKS;
  const bool mine = column < COLUMNS;
  t += matrix * COUNT * COUNT;
  b += matrix * COUNT * COLUMNS + column;
  x += matrix * COUNT * COLUMNS + column;
  for (int i = team; mine && i < COUNT; i += TEAMS) x[(long long)i * COLUMNS] = b[(long long)i * COLUMNS];
  __syncthreads();
  for (int turn = 0; turn < COUNT; ++turn) {
    const int i = UPWARDS ? COUNT - 1 - turn : turn;
    if (mine) {
      T found = x[(long long)i * COLUMNS];
      if (!UNIT) found /= t[(long long)i * COUNT + i];
      for (int rest = turn + 1 + team; rest < COUNT; rest += TEAMS) {
        const int j = UPWARDS ? COUNT - 1 - rest : rest;
        x[(long long)j * COLUMNS] -= t[TRANSPOSED ? (long long)i * COUNT + j : (long long)j * COUNT + i] * found;
      }
    }
    __syncthreads();  // the next unknown has all of its terms
  }
  for (int i = team; mine && !UNIT && i < COUNT; i += TEAMS) x[(long long)i * COLUMNS] /= t[(long long)i * COUNT + i];
}
