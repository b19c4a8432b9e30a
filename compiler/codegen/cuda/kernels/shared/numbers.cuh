// Storage types and their conversion to what is computed in. No CUDA headers: they would double the time of a compile.
struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float wide(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// Rounded to the nearest, ties to even.
__device__ __forceinline__ void store(float *to, float x) { *to = x; }
__device__ __forceinline__ void store(double *to, double x) { *to = x; }
__device__ __forceinline__ void store(bf16 *to, float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  to->bits = y;
}
__device__ __forceinline__ void store(f16 *to, float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  to->bits = y;
}

// Two neighbours at once.
__device__ __forceinline__ void store(float *to, float x, float y) { *reinterpret_cast<float2 *>(to) = make_float2(x, y); }
__device__ __forceinline__ void store(bf16 *to, float x, float y) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  *reinterpret_cast<unsigned *>(to) = both;
}
__device__ __forceinline__ void store(f16 *to, float x, float y) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  *reinterpret_cast<unsigned *>(to) = both;
}

// Rounded to the nearest with the 10 bits of TF32: from sm_90 on by one instruction, ties to even, before by three, ties away
// from zero.
__device__ __forceinline__ unsigned tf32(float x) {
  unsigned found;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(found) : "f"(x));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(x));
#endif
  return found;
}

__device__ __forceinline__ float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ double fused(double x, double y, double z) { return __fma_rn(x, y, z); }

// Waits for the kernel before this one, since the device may have launched this one ahead. Nothing is read or written earlier.
__device__ __forceinline__ void wait_for_those_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// nan where either is, as numpy has them.
__device__ __forceinline__ float lesser(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
__device__ __forceinline__ float greater(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
__device__ __forceinline__ double lesser(double x, double y) { return x < y || x != x ? x : y; }
__device__ __forceinline__ double greater(double x, double y) { return x > y || x != x ? x : y; }

__device__ __forceinline__ int wide(int x) { return x; }
__device__ __forceinline__ long long wide(long long x) { return x; }
__device__ __forceinline__ void store(int *to, int x) { *to = x; }
__device__ __forceinline__ void store(long long *to, long long x) { *to = x; }

// x / size for 0 <= x < 2^31, by the magic number and the shift of the size (cuda_cpp.py: Numbers.divisor).
__device__ __forceinline__ int quotient(int x, int magic, int shift) {
  return (int)(__umulhi(2u * (unsigned)x, (unsigned)magic) >> shift);
}

// Neighbours in memory, 1 to 16 bytes together, read and written at once.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

template <class T, int COUNT> struct Lanes {
  using Whole = typename Word<sizeof(T) * COUNT>::type;
  T x[COUNT];
  __device__ __forceinline__ static Lanes read(const T *from) {
    const Whole whole = *reinterpret_cast<const Whole *>(from);
    Lanes lanes;
    memcpy(&lanes, &whole, sizeof(Whole));
    return lanes;
  }
  __device__ __forceinline__ void write(T *to) const {
    Whole whole;
    memcpy(&whole, this, sizeof(Whole));
    *reinterpret_cast<Whole *>(to) = whole;
  }
};
