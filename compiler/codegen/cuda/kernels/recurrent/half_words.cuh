// Words of bf16 or f16: 7 elements, and 16 bits of the step's number above them.
#include "resident.cuh"

constexpr int FACTORS = 4, PACKED = 2; // registers of a word's elements, as tensor cores take them; elements of a register

__device__ __forceinline__ unsigned label_of(int step) { return (unsigned)(step + 1) << 16; }
__device__ __forceinline__ bool is_there(const uint4 &word, unsigned label) { return ((word.w ^ label) & 0xFFFF0000u) == 0; }

template <class T> __device__ __forceinline__ unsigned factor(T x) { return x.bits; }
__device__ __forceinline__ void unpack(unsigned (&factors)[FACTORS], const uint4 &word) {
  factors[0] = word.x, factors[1] = word.y, factors[2] = word.z, factors[3] = word.w & 0xFFFF;
}

// Puts the elements of 8 threads, of which the last has none, into their word. All threads of a warp call it.
template <class T> __device__ __forceinline__ void put(unsigned char *word, bool inside, bool row, float x, int step) {
  T y;
  store(&y, x);
  const unsigned bits = inside ? y.bits : 0, next = __shfl_xor_sync(0xFFFFFFFFu, bits, 1);
  const unsigned both = threadIdx.x % 8 == 6 ? bits | label_of(step) : bits | next << 16;
  const unsigned second = __shfl_xor_sync(0xFFFFFFFFu, both, 2), third = __shfl_xor_sync(0xFFFFFFFFu, both, 4);
  const unsigned last = __shfl_xor_sync(0xFFFFFFFFu, both, 6);
  if (row && threadIdx.x % 8 == 0) write_word(word, both, second, third, last);
}
