// Where the rows of each id are, in three launches, one thread a row j: see Places. In the end the rows of an id, in any order, are
// places[starts[id]] and the counts[id] - 1 behind it; ranks[j] counts the rows of an id in that order, -1 where ids[j] does not
// exist; longs has the ids with more than PART rows. starts of ids that no row has are whatever they were. lost: whether an id does
// not exist.

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(const I *__restrict__ ids, int *work, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  const Places p = places_of(work, s.COUNT, s.LENGTH, s.PART);
  const int j = blockIdx.x * THREADS + threadIdx.x;
  const long long id = j < s.LENGTH ? ids[j] : -1;
  const bool known = id >= 0 && id < s.COUNT;
  if (STEP == 0) {  // the rows with the id of the warp's first row take their ranks together
    const int lane = threadIdx.x % 32;
    const long long first_id = __shfl_sync(0xFFFFFFFFu, id, 0);
    const unsigned same = __ballot_sync(0xFFFFFFFFu, known && id == first_id);
    int rank = -1;
    if (known && (lane == 0 || !(same >> lane & 1))) rank = atomicAdd(p.counts + id, lane == 0 ? __popc(same) : 1);
    const int first = __shfl_sync(0xFFFFFFFFu, rank, 0);
    if (same >> lane & 1) rank = first + __popc(same & ((1u << lane) - 1));
    if (j < s.LENGTH) p.ranks[j] = rank;
    if (j < s.LENGTH && !known) *p.lost = 1;
  }
  if (!known) return;
  if (STEP == 1 && p.ranks[j] == 0) {
    const int count = p.counts[id];
    p.starts[id] = atomicAdd(p.total, count);
    if (count > s.PART) p.longs[atomicAdd(p.many, 1)] = id;
  }
  if (STEP == 2) p.places[p.starts[id] + p.ranks[j]] = j;
}
