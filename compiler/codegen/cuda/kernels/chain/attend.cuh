// A stage of attention, in its namespace: as few_queries.cu, for one part of the keys of a head of k after the other. Of
// rows that the chain puts into the tables of k and v in this stage (PUT of them, at `ids`), the new ones are read where the
// chain has made them, so nobody waits for the tables. The other rows are on their way before q is there.

#include "queries.cuh"

struct Attend {
  const T *q;
  const KV *k, *v;
  const unsigned char *mask;
  const T *new_k, *new_v;
  const ID *ids;
  float *parts;
  int stack, split, first, last;
  bool lost; // an id does not exist: all of the table is nan
  int ours[PUT > 0 ? PUT : 1];

  // Which of the new rows is that of a key, the last of equal ids; -1 for none.
  __device__ __forceinline__ int put_at(int key) const {
    int found = -1;
#pragma unroll
    for (int r = 0; r < PUT; ++r)
      if (ours[r] == key) found = r;
    return found;
  }

  // Where an element of a row of the table lies in the tensor that has the new rows.
  __device__ __forceinline__ static long long source(int within, int row) {
    constexpr int sizes[RANK] = {SIZES};
    constexpr long long steps[RANK] = {STEPS};
    long long at = row * (long long)ROW_STEP;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis) at += within % sizes[axis] * steps[axis], within /= sizes[axis];
    return at;
  }

  struct Batch {
    float key[NEXT][8], value[NEXT][8];
    bool meets[NEXT][ROWS], any[NEXT];
  };

  __device__ __forceinline__ void read_old(Batch &batch, int begin, int team, int feature) const {
    constexpr Layout k_at = K, v_at = V;
    const KV *const keys = k + begins<SHARE>(k_at, stack * SHARE) + feature;
    const KV *const values = v + begins<SHARE>(v_at, stack * SHARE) + feature;
#pragma unroll
    for (int n = 0; n < NEXT; ++n) {
      const int key = begin + n * TEAMS + team;
      batch.any[n] = false;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        batch.meets[n][r] = key < last;
#if MASKED
        if (key < last) batch.meets[n][r] = meets_key(mask, stack, r, key);
#endif
        batch.any[n] |= batch.meets[n][r];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) batch.key[n][i] = batch.value[n][i] = lost ? __int_as_float(0x7FC00000) : 0;
      if (!lost && batch.any[n] && feature < FEATURES && put_at(key) < 0)
        read8(batch.key[n], keys + (long long)key * k_at.row), read8(batch.value[n], values + (long long)key * v_at.row);
    }
  }

  __device__ __forceinline__ void read_new(Batch &batch, int begin, int team, int feature) const {
    if constexpr (PUT > 0) {
      constexpr Layout k_at = K, v_at = V;
      const int in_k = (int)begins<SHARE>(k_at, stack * SHARE) + feature;
      const int in_v = (int)begins<SHARE>(v_at, stack * SHARE) + feature;
#pragma unroll
      for (int n = 0; n < NEXT; ++n) {
        const int row = put_at(begin + n * TEAMS + team);
        if (lost || row < 0 || !batch.any[n] || feature >= FEATURES) continue;
        read8(batch.key[n], new_k + source(in_k, row)), read8(batch.value[n], new_v + source(in_v, row));
      }
    }
  }

  __device__ __forceinline__ void run(const Turn &turn) {
    const int team = threadIdx.x / TEAM, feature = threadIdx.x % TEAM * 8;
    OfWarps<WARPS> &warps = *reinterpret_cast<OfWarps<WARPS> *>(memory);
    lost = false;
#pragma unroll
    for (int r = 0; r < PUT; ++r) {
      const long long id = ids[r];
      lost |= id < 0 || id >= KEYS;
      ours[r] = id < 0 || id >= KEYS ? -1 : (int)id;
    }
    bool waited = false;
#pragma unroll 1
    for (int item = blockIdx.x; item < HEADS * SPLITS; item += GRID) {
      stack = item / SPLITS, split = item % SPLITS, first = split * PART, last = min(KEYS, first + PART);
      Batch batch;
      read_old(batch, first, team, feature);
      if (!waited) turn.bring(), turn.wait();
      waited = true;
      Seen seen;
      seen.begin(q, stack, feature);
#pragma unroll 1
      for (int begin = first; begin < last; begin += TEAMS * NEXT) {
        if (begin > first) read_old(batch, begin, team, feature);
        read_new(batch, begin, team, feature);
#pragma unroll
        for (int n = 0; n < NEXT; ++n)
#pragma unroll
          for (int r = 0; r < ROWS; ++r) seen.see(r, batch.key[n], batch.value[n], batch.meets[n][r]);
      }
      __syncthreads(); // others may still read what an item before has left
      warps.put(seen);
      __syncthreads();
      for (int e = threadIdx.x; e < ROWS * FEATURES; e += THREADS) {
        const int r = e / FEATURES, f = e % FEATURES;
        float most, all;
        const float sum = warps.get(r, f, most, all);
        put_part(parts + ((long long)item * ROWS + r) * (FEATURES + 2), f, sum, most, all);
      }
    }
    if (!waited) turn.bring(), turn.wait();
  }
};

// The left factor of the product that reads the attention: all of it from its parts, which are added in their order.
struct Joined {
  const float *parts;
  __device__ __forceinline__ void early() {}
  __device__ __forceinline__ const T *get() {
    constexpr Layout at = Y;
    constexpr int STEP = ROWS * (FEATURES + 2);
    T *const whole = reinterpret_cast<T *>(memory);
    for (int e = threadIdx.x; e < HEADS * ROWS * FEATURES; e += THREADS) {
      const int stack = e / (ROWS * FEATURES), r = e / FEATURES % ROWS, f = e % FEATURES;
      const float *const part = parts + (long long)stack * SPLITS * STEP + r * (FEATURES + 2);
      store(whole + row_of(at, stack, r) + f, joined(part, f, true));
    }
    __syncthreads();
    return whole;
  }
};
