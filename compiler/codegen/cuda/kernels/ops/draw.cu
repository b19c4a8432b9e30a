// Random numbers by counting: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). A thread makes one draw: four elements of
// 32 bits or eight of 16, whose numbers are those of the whole batch. Uniform numbers and masks are those of the reference
// bit for bit; normal ones are computed in f64 from the same bits and rounded once. Those of 16 bits are computed in f32, and in f64
// only where the error of f32 may change the rounding.

__device__ __forceinline__ void philox(unsigned (&c)[4], unsigned k0, unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned h0 = __umulhi(c[0], 0xD2511F53u), l0 = c[0] * 0xD2511F53u;
    unsigned h1 = __umulhi(c[2], 0xCD9E8D57u), l1 = c[2] * 0xCD9E8D57u;
    c[0] = h1 ^ c[1] ^ k0;
    c[1] = l1;
    c[2] = h0 ^ c[3] ^ k1;
    c[3] = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// A pair of words gives two normal numbers (Box and Muller), from f32 bits on in f64.
__device__ __forceinline__ float normal(const unsigned (&words)[4], int place) {
  unsigned w = words[place & 2], v = words[place | 1];
  double u = (double)__fadd_rn(__fmul_rn(__uint2float_rn(w), 0x1p-32f), 0x1p-33f);
  double a = (double)((int)v >> 8) * 0x1p-23;
  double radius = sqrt(-2.0 * log(u));
  return (float)(radius * ((place & 1) ? sinpi(a) : cospi(a)));
}

__device__ __forceinline__ void put(T *to, float x) { store(to, (WIDE)x); }

#if MODE == 1
__device__ __forceinline__ void scaled(T *to, const Numbers &s, float x) { put(to, __fadd_rn(s.LOW, __fmul_rn(s.HIGH, x))); }

// Two normal numbers of 16 bits. log, sin and cos in f32 have errors of one unit in the last place, so the product and its multiple
// have less than 2^-20, and the sum less than 2^-22 of LOW in addition.
template <typename HALF> __device__ __forceinline__ void scaled_pair(HALF *to, const Numbers &s, const unsigned (&words)[4], int place) {
  const float u = __fadd_rn(__fmul_rn(__uint2float_rn(words[place]), 0x1p-32f), 0x1p-33f);
  const float radius = sqrtf(-2.0f * logf(u)), a = (float)((int)words[place + 1] >> 8) * 0x1p-23f;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float x = s.HIGH * (radius * (i ? sinpif(a) : cospif(a))), error = fabsf(x) * 0x1p-20f + fabsf(s.LOW) * 0x1p-22f;
    HALF least, most;
    store(&least, s.LOW + x - error);
    store(&most, s.LOW + x + error);
    if (least.bits == most.bits) to[i] = least;
    else scaled(to + i, s, normal(words, place + i));
  }
}
#endif

extern "C" __global__ void KERNEL(
#if MODE == 2
    const T *__restrict__ x,
#endif
    const long long *__restrict__ seed,
#if STEPPED
    const long long *__restrict__ step, const long long *__restrict__ row,
#endif
    T *__restrict__ y, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  constexpr int EACH = MODE == 2 ? 8 : 4;
#if STEPPED
  const unsigned long long turn = (unsigned long long)*step, first = (unsigned long long)(*row * s.ROW_ELEMENTS);
#else
  const unsigned long long turn = 0, first = 0;
#endif
  const unsigned long long key = (unsigned long long)(*seed ^ s.KEY);
  const unsigned long long thread = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  const unsigned long long draw = first / EACH + thread;
  unsigned words[4] = {(unsigned)draw, (unsigned)(draw >> 32), (unsigned)turn, (unsigned)(turn >> 32)};
  philox(words, (unsigned)key, (unsigned)(key >> 32));

  // The draw's first element in this tensor; of the first draw some may be before it.
  const long long e = (long long)(thread * EACH - first % EACH);
  if (e >= s.ELEMENTS) return;
  constexpr int PIECE = EACH * (int)sizeof(T) > 16 ? 16 / (int)sizeof(T) : EACH;
  const bool whole = first % EACH == 0 && e + EACH <= s.ELEMENTS;
  T made[EACH];
#if MODE == 2
  if (whole) {
#pragma unroll
    for (int i = 0; i < EACH; i += PIECE) {
      const auto piece = Lanes<T, PIECE>::read(x + e + i);
#pragma unroll
      for (int j = 0; j < PIECE; ++j) made[i + j] = piece.x[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (e + i >= 0 && e + i < s.ELEMENTS) made[i] = x[e + i];
  }
#endif
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
#if MODE == 0
    put(made + i, __fadd_rn(s.LOW, __fmul_rn(s.HIGH, __fmul_rn(__uint2float_rn(words[i] >> 8), 0x1p-24f))));
#elif MODE == 1
    if constexpr (sizeof(T) > 2) scaled(made + i, s, normal(words, i));
    else if (i % 2 == 0) scaled_pair(made + i, s, words, i);
#else
    const unsigned half = (words[i / 2] >> (i % 2 * 16)) & 0xFFFFu;
    store(made + i, (int)half >= s.LEAST ? wide(made[i]) * s.SCALE : decltype(wide(made[i]))(0));
#endif
  }
  if (whole) {
#pragma unroll
    for (int i = 0; i < EACH; i += PIECE) {
      Lanes<T, PIECE> piece;
#pragma unroll
      for (int j = 0; j < PIECE; ++j) piece.x[j] = made[i + j];
      piece.write(y + e + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (e + i >= 0 && e + i < s.ELEMENTS) y[e + i] = made[i];
  }
}
