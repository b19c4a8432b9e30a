// y[line, id] is x[line, id], if there is one, combined with the src[line, j] with ids[line, j] = id: a warp has HELD neighbouring
// elements of a line in shared memory and goes through all ids of the line, 32 at once, of which it takes its own. LAST: y[line, id]
// is the last such src[line, j], or x[line, id]; places j are held. If an id does not exist, its line is FILLER, if there is one.
#include "elements.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENT_SRC const I *__restrict__ ids, ARGUMENT_X T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  __shared__ HOLD room[THREADS / 32 * HELD];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, splits = (s.COUNT + HELD - 1) / HELD;
  const int unit = blockIdx.x * (THREADS / 32) + warp;
  if (unit >= s.LINES * splits) return;
  const int line = unit / splits, low = unit % splits * HELD, here = s.COUNT - low < HELD ? s.COUNT - low : HELD;
  const long long begin = (long long)line * s.COUNT + low;
  HOLD *held = room + warp * HELD;
  const long long all = (long long)line * s.LENGTH;
  ids += all;
  y += begin;
  for (int k = lane; k < here; k += 32) held[k] = HELD_AT_FIRST(begin + k);
  __syncwarp();
  bool lost = false;
  for (int first = lane; first < s.LENGTH + lane; first += 32 * AHEAD) {
    int keys[AHEAD];
    HOLD values[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const int j = first + 32 * a;
      const bool there = j < s.LENGTH;
      const long long id = there ? ids[j] : 0;
      lost |= id < 0 || id >= s.COUNT;
      keys[a] = there && id >= low && id < low + here ? (int)(id - low) : -1;
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) values[a] = keys[a] < 0 ? NEUTRAL : LAST ? GIVEN_AT(first + 32 * a) : GIVEN_AT(all + first + 32 * a);
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) take(held, keys[a], values[a]);
  }
  const bool fills = FILLS && __ballot_sync(0xFFFFFFFFu, lost);
  for (int k = lane; k < here; k += 32) {
    if (fills) FILL(y + k);
    else put(y + k, AT_X(begin + k), SRC + all, held[k]);
  }
}
