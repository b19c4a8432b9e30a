// y[part, id, .] is x[part, id, .], if there is one, combined with the rows[part, j, .] with ids[part, j] = id, for few rows: the block
// of ROWS neighbouring ids of a part goes through all ids of the part, puts the places j of its own in order, by id and then by j,
// and combines TEAM * VEC columns of their rows in that order. An id with more than LONG rows has all teams of the block: each combines an equal run of
// rows, and then their results are combined in order. If an id does not exist, y[part] is FILLER, if there is one.
#include "rows.cuh"
#include "digits.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int WARPS = THREADS / 32, TEAMS = THREADS / TEAM, PER = (ROWS + THREADS - 1) / THREADS;
  __shared__ int counts[WARPS * ROWS];  // of each warp and id; then where its next place comes
  __shared__ int starts[ROWS + 1];
  __shared__ unsigned short places[MOST];
  __shared__ unsigned short longs[MOST / (LONG + 1) + 1];
  __shared__ SUM joined[THREADS * VEC];
  __shared__ int warps[WARPS], found[2];  // how many ids do not exist; how many longs there are
  const int slices = (s.COUNT + ROWS - 1) / ROWS, chunks = (s.INNER + TEAM * VEC - 1) / (TEAM * VEC);
  const int block = blockIdx.x / chunks, part = block / slices, low = block % slices * ROWS;
  const int here = s.COUNT - low < ROWS ? s.COUNT - low : ROWS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int each = (s.LENGTH + THREADS - 1) / THREADS * 32, from = warp * each, to = from + each < s.LENGTH ? from + each : s.LENGTH;
  ids += (long long)part * s.LENGTH;
  rows += (long long)part * s.LENGTH * s.INNER;
  const long long begin = ((long long)part * s.COUNT + low) * s.INNER;
  y += begin;
  for (int i = threadIdx.x; i < WARPS * ROWS; i += THREADS) counts[i] = 0;
  if (threadIdx.x == 0) found[0] = found[1] = 0;
  __syncthreads();
#pragma unroll 4
  for (int j = from + lane; j < to; j += 32) {
    const long long id = ids[j];
    if (id < 0 || id >= s.COUNT) atomicAdd(found, 1);
    else if (id >= low && id < low + here) atomicAdd(counts + warp * ROWS + (int)(id - low), 1);
  }
  __syncthreads();
  int own = 0, all;
  for (int k = 0; k < PER; ++k) {
    const int r = threadIdx.x * PER + k;
    for (int w = 0; r < ROWS && w < WARPS; ++w) own += counts[w * ROWS + r];
  }
  int at = sum_before(own, warps, all);
  for (int k = 0; k < PER; ++k) {
    const int r = threadIdx.x * PER + k;
    if (r >= ROWS) break;
    starts[r] = at;
    for (int w = 0; w < WARPS; ++w) {
      const int count = counts[w * ROWS + r];
      counts[w * ROWS + r] = at;
      at += count;
    }
  }
  if (threadIdx.x == 0) starts[ROWS] = all;
  __syncthreads();
  for (int first = from; first < to; first += 32) {
    const int j = first + lane;
    const long long id = j < to ? ids[j] : -1;
    const bool mine = id >= low && id < low + here;
    const int r = mine ? (int)(id - low) : 0;
    unsigned same = __ballot_sync(0xFFFFFFFFu, mine);
    if (!same) continue;
    same = with_same<BITS>(same, r);
    const int before = __popc(same & ((1u << lane) - 1));
    if (mine) places[counts[warp * ROWS + r] + before] = j;
    __syncwarp();
    if (mine && !before) counts[warp * ROWS + r] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
  const int team = threadIdx.x / TEAM, member = threadIdx.x % TEAM, column = (blockIdx.x % chunks * TEAM + member) * VEC;
  const bool fills = FILLS && found[0];
  for (int r = team; r < here; r += TEAMS) {
    const int count = starts[r + 1] - starts[r];
    if (!fills && count > LONG) {
      if (!member) longs[atomicAdd(found + 1, 1)] = r;
      continue;
    }
    if (column >= s.INNER) continue;
    const long long to = (long long)r * s.INNER + column;
    SUM held[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) held[i] = NEUTRAL;
    if (fills) {
      fill(y + to, FILLER);
    } else {
      combine_rows(held, rows + column, s.INNER, places + starts[r], count, 0);
      finish(y + to, AT_X(begin + to), held);
    }
  }
  __syncthreads();
  for (int l = 0; l < found[1]; ++l) {
    const int r = longs[l], count = starts[r + 1] - starts[r], share = (count + TEAMS - 1) / TEAMS;
    const int start = team * share < count ? team * share : count, mine = count - start < share ? count - start : share;
    SUM held[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) held[i] = NEUTRAL;
    if (column < s.INNER) combine_rows(held, rows + column, s.INNER, places + starts[r] + start, mine, 0);
#pragma unroll
    for (int i = 0; i < VEC; ++i) joined[i * THREADS + threadIdx.x] = held[i];
    __syncthreads();
    if (!team && column < s.INNER) {
      for (int t = 1; t < TEAMS; ++t) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) held[i] = combined(held[i], joined[i * THREADS + t * TEAM + member]);
      }
      const long long to = (long long)r * s.INNER + column;
      finish(y + to, AT_X(begin + to), held);
    }
    __syncthreads();
  }
}
