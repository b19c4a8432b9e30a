// A scatter of elements whose keys, line * COUNT + id, are sorted by bins of WARPS * HELD neighbouring keys; places of ids that do not
// exist come last. plan[0 ..]: where each bin's places begin; then the number of its first unit, of at most PART places; then the
// number of its first part: only bins of several units have parts. STEP 0 makes the plan from the bins' totals. STEP 1: a block
// combines a unit, each warp for HELD keys, and leaves the results in y, or in parts. STEP 2 combines the parts of a bin in order.
#include "elements.cuh"

#if STEP > 0
// The places of ids that do not exist are all in other lines than this key's, or have no FILLER.
struct Lost {
  int line;
  bool here, next;
  __device__ __forceinline__ bool at(const Numbers &s, int key) const { return FILLS && (key / s.COUNT == line ? here : next); }
};

// What is held for a key, of places those in their line.
__device__ __forceinline__ HOLD shown(const Numbers &s, HOLD held) {
#if PLACES
  return held < 0 ? held : held % s.LENGTH;
#else
  return held;
#endif
}

// A bin has keys of at most two lines.
__device__ __forceinline__ Lost lost_of(const Numbers &s, const int *places, int known, int low, int *found) {
  Lost lost = {low / s.COUNT, false, false};
  if (!FILLS || known == s.ALL) return lost;
  if (threadIdx.x < 2) found[threadIdx.x] = 0;
  __syncthreads();
  for (int i = known + threadIdx.x; i < s.ALL; i += THREADS) {
    const int line = places[i] / s.LENGTH - lost.line;
    if (line == 0 || line == 1) atomicAdd(found + line, 1);
  }
  __syncthreads();
  lost.here = found[0];
  lost.next = found[1];
  return lost;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int WARPS = THREADS / 32, WIDTH = WARPS * HELD;
  const int stride = s.BINS + 2;
#if STEP == 0
  __shared__ int warps[WARPS];
  int before[3] = {0, 0, 0};
  for (int first = 0; first < stride; first += THREADS) {
    const int b = first + threadIdx.x, places = b <= s.BINS ? totals[b] : 0;
    const int units = b >= s.BINS ? 0 : places > PART ? (places + PART - 1) / PART : 1;
    const int own[3] = {places, units, units > 1 ? units : 0};
    for (int i = 0; i < 3; ++i) {
      int all;
      const int at = before[i] + sum_before(own[i], warps, all);
      if (b < stride) plan[i * stride + b] = at;
      before[i] += all;
      __syncthreads();
    }
  }
#elif STEP == 1
  __shared__ HOLD room[WIDTH];
  __shared__ int found[2];
  const int unit = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int *units = plan + stride;
  if (unit >= units[s.BINS]) return;
  int bin = 0;  // the last one whose first unit is not after this one
  for (int high = s.BINS; bin + 1 < high;) {
    const int middle = (bin + high) / 2;
    if (units[middle] <= unit) bin = middle;
    else high = middle;
  }
  const bool whole = units[bin + 1] - units[bin] == 1;
  const int low = bin * WIDTH, mine = low + warp * HELD, end = plan[bin + 1];
  const int from = plan[bin] + (unit - units[bin]) * PART, to = end - from < PART ? end : from + PART;
  const Lost lost = lost_of(s, places, plan[s.BINS], low, found);
  HOLD *held = room + warp * HELD;
  for (int k = lane; k < HELD; k += 32) held[k] = whole && mine + k < s.KEYS ? HELD_AT_FIRST(mine + k) : NEUTRAL;
  __syncwarp();
  for (int first = from + lane; first < to + lane; first += 32 * AHEAD) {
    int taken[AHEAD];
    HOLD values[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const int i = first + 32 * a, key = i < to ? (int)keys[i] - mine : -1;
      taken[a] = key >= 0 && key < HELD ? key : -1;
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) values[a] = taken[a] < 0 ? NEUTRAL : GIVEN_AT(places[first + 32 * a]);
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) take(held, taken[a], values[a]);
  }
  HOLD *to_parts = parts + (long long)(plan[2 * stride + bin] + unit - units[bin]) * WIDTH + warp * HELD;
  for (int k = lane; k < HELD; k += 32) {
    if (!whole) to_parts[k] = held[k];
    else if (mine + k >= s.KEYS) break;
    else if (lost.at(s, mine + k)) FILL(y + mine + k);
    else put(y + mine + k, AT_X(mine + k), SRC, shown(s, held[k]));
  }
#else
  __shared__ int found[2];
  constexpr int SLICES = WIDTH / THREADS;
  const int bin = blockIdx.x / SLICES, key = blockIdx.x * THREADS + threadIdx.x;
  const int *units = plan + stride, count = units[bin + 1] - units[bin];
  if (count == 1) return;
  const Lost lost = lost_of(s, places, plan[s.BINS], bin * WIDTH, found);
  if (key >= s.KEYS) return;
  const HOLD *part = parts + (long long)plan[2 * stride + bin] * WIDTH + key % WIDTH;
  HOLD held = HELD_AT_FIRST(key);
#pragma unroll 8
  for (int p = 0; p < count; ++p) {
    const HOLD other = part[(long long)p * WIDTH];
#if LAST
    held = other < 0 ? held : other;
#else
    held = combined(held, other);
#endif
  }
  if (lost.at(s, key)) FILL(y + key);
  else put(y + key, AT_X(key), SRC, shown(s, held));
#endif
}
