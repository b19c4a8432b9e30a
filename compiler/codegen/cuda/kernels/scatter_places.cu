// Where the rows of each id are, in four launches, one thread a row j: work is counts[COUNT], starts[COUNT], ranks[LENGTH],
// places[LENGTH], lost, total. In the end the rows of an id, in any order, are places[starts[id]] and the counts[id] - 1 behind it;
// ranks[j] is 0 for one of them, -1 where ids[j] does not exist; counts and starts of ids that no row has are whatever they were.
// lost: whether an id does not exist.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const I *__restrict__ ids, int *work, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH);
  const int j = blockIdx.x * THREADS + threadIdx.x;
  if (STEP == 0 && j == 0) *p.lost = *p.total = 0;
  if (j >= s.LENGTH) return;
  const long long id = ids[j];
  const bool known = id >= 0 && id < s.COUNT;
  if (STEP == 0 && known) p.counts[id] = 0;
  if (STEP == 1) p.ranks[j] = known ? atomicAdd(p.counts + id, 1) : -1;
  if (STEP == 1 && !known) *p.lost = 1;
  if (STEP == 2 && known && p.ranks[j] == 0) p.starts[id] = atomicAdd(p.total, p.counts[id]);
  if (STEP == 3 && known) p.places[p.starts[id] + p.ranks[j]] = j;
}
