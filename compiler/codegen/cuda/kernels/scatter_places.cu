// Where the rows of each id are, by one block: work is counts[COUNT], starts[COUNT], ranks[LENGTH], places[LENGTH], lost. The rows j of
// an id, in any order, are places[starts[id]] and the counts[id] - 1 behind it; ranks[j] is 0 for one of them, -1 where ids[j] does not
// exist. Counts and starts of ids that no row has stay as they are. lost: whether an id does not exist.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const I *__restrict__ ids, int *work, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH);
  __shared__ int total;
  bool lost = false;
  for (int j = threadIdx.x; j < s.LENGTH; j += THREADS) {
    const long long id = ids[j];
    if (id < 0 || id >= s.COUNT)
      lost = true;
    else
      p.counts[id] = 0;
  }
  if (threadIdx.x == 0) total = 0;
  lost = __syncthreads_or(lost);
  if (threadIdx.x == 0) *p.lost = lost;
  for (int j = threadIdx.x; j < s.LENGTH; j += THREADS) {
    const long long id = ids[j];
    p.ranks[j] = id < 0 || id >= s.COUNT ? -1 : atomicAdd(p.counts + id, 1);
  }
  __syncthreads();
  for (int j = threadIdx.x; j < s.LENGTH; j += THREADS)
    if (p.ranks[j] == 0) p.starts[ids[j]] = atomicAdd(&total, __ldcg(p.counts + ids[j]));
  __syncthreads();
  for (int j = threadIdx.x; j < s.LENGTH; j += THREADS)
    if (p.ranks[j] >= 0) p.places[p.starts[ids[j]] + p.ranks[j]] = j;
}
