constexpr float LOG2_E = 0x1.715476p+0f, FACTOR = SCALE * LOG2_E;
#define INFINITE __int_as_float(0x7F800000)

struct Layout {
  long long start, outer, inner;
  int row;
};
struct Pairs {
  long long start, outer, inner, query, key;
};

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Where row 0 of a head begins; `stack` counts heads of q, HEADS of which in a row have one head of the tensor.
template <int HEADS> __device__ __forceinline__ long long begins(const Layout &of, int stack) {
  return of.start + stack / INNER * of.outer + stack % INNER / HEADS * of.inner;
}

// 8 neighbours as floats, rounded to T.
template <class FROM> __device__ __forceinline__ void read8(float (&to)[8], const FROM *from) {
  constexpr int EACH = 16 / sizeof(FROM);
#pragma unroll
  for (int part = 0; part < 8 / EACH; ++part) {
    const Lanes<FROM, EACH> lanes = Lanes<FROM, EACH>::read(from + part * EACH);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      to[part * EACH + i] = wide(lanes.x[i]);
      if constexpr (sizeof(FROM) > sizeof(T)) {
        T rounded;
        store(&rounded, wide(lanes.x[i]));
        to[part * EACH + i] = wide(rounded);
      }
    }
  }
}

// What is taken off the scores of two sums that become one: the larger of their tops, nothing where all are minus infinity.
__device__ __forceinline__ float shift(float top, float more) {
  const float both = fmaxf(top, more);
  return both == -INFINITE ? 0 : both;
}
