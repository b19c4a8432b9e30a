// Words of f32 rounded to TF32, whose upper 19 bits say all: 6 elements, and 13 bits of the step's number. Each of the first
// four elements has the upper bits of a 32-bit part. Of the lower 13 bits, those of the first and the third part begin elements
// 4 and 5, those of the second have the 6 last bits of both, and those of the fourth the number.
#include "resident.cuh"

constexpr int FACTORS = 6, PACKED = 1; // registers of a word's elements, as tensor cores take them; elements of a register
constexpr unsigned UPPER = 0xFFFFE000u, LAST = 0x3Fu << 13;

__device__ __forceinline__ unsigned label_of(int step) { return (unsigned)(step + 1) & ~UPPER; }
__device__ __forceinline__ bool is_there(const uint4 &word, unsigned label) { return ((word.w ^ label) & ~UPPER) == 0; }

__device__ __forceinline__ unsigned factor(float x) { return tf32(x) & UPPER; }
__device__ __forceinline__ void unpack(unsigned (&factors)[FACTORS], const uint4 &word) {
  factors[0] = word.x & UPPER, factors[1] = word.y & UPPER, factors[2] = word.z & UPPER, factors[3] = word.w & UPPER;
  factors[4] = word.x << 19 | (word.y << 13 & LAST), factors[5] = word.z << 19 | (word.y << 7 & LAST);
}

// Puts the elements of 8 threads, of which the last two have none, into their word. All threads of a warp call it.
template <class T> __device__ __forceinline__ void put(unsigned char *word, bool inside, bool row, float x, int step) {
  const unsigned bits = inside ? factor(x) : 0;
  const unsigned second = __shfl_xor_sync(0xFFFFFFFFu, bits, 1), third = __shfl_xor_sync(0xFFFFFFFFu, bits, 2);
  const unsigned fourth = __shfl_xor_sync(0xFFFFFFFFu, bits, 3), fifth = __shfl_xor_sync(0xFFFFFFFFu, bits, 4);
  const unsigned sixth = __shfl_xor_sync(0xFFFFFFFFu, bits, 5), lasts = (fifth & LAST) >> 13 | (sixth & LAST) >> 7;
  if (row && threadIdx.x % 8 == 0)
    write_word(word, bits | fifth >> 19, second | lasts, third | sixth >> 19, fourth | label_of(step));
}
