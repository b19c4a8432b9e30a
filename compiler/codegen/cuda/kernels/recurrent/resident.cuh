// How the blocks of a loop's resident kernel exchange the left factors of its products. The text in front says THREADS,
// WARPS, BLOCKS, ROWS, H, the width of a state, J, how many of its columns a block owns, WORD, the elements of a word, and
// PART, the threads that fill it: one for each element, and idle ones.

#include "rounded.cuh"

// The exchange of the products' left factors. A block puts its J columns of a row, in each group of H, into WORDS words of 16
// bytes: WORD elements, and above them the number of the step, from 1. So a word itself says that it is there, a reader needs
// one trip to the L2 cache, and a writer waits for nothing. A factor lies in one of 2 places, in turn by step. Nobody reads a
// place any more when it is written again, two steps later: a block writes in step s + 2 after it has seen words of all
// blocks of step s + 1, and each block wrote these after it had read all of step s. The memory is 0 before the kernel.
constexpr int WORDS = (J + WORD - 1) / WORD;

__device__ __forceinline__ uint4 take(const uint4 *from) {
  unsigned long long low, high;
  asm volatile("{\n.reg .b128 q;\nld.relaxed.gpu.global.b128 q, [%2];\nmov.b128 {%0, %1}, q;\n\t}"
               : "=l"(low), "=l"(high)
               : "l"(from)
               : "memory");
  return make_uint4((unsigned)low, (unsigned)(low >> 32), (unsigned)high, (unsigned)(high >> 32));
}
__device__ __forceinline__ void write_word(unsigned char *to, unsigned x, unsigned y, unsigned z, unsigned w) {
  asm volatile("{\n.reg .b128 q;\nmov.b128 q, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], q;\n\t}" ::"l"(to),
               "l"(x | (unsigned long long)y << 32), "l"(z | (unsigned long long)w << 32)
               : "memory");
}
// A word that need not be read, or one that is not there.
__device__ __forceinline__ uint4 no_word(bool needed, unsigned label) { return make_uint4(0, 0, 0, needed ? ~label : label); }

// The block has put its words. Warps without elements come to the next ones early: if they looked for words then, again and
// again, the others' words would wait behind these loads.
__device__ __forceinline__ void all_are_put() {
  if (ROWS * PART * WORDS <= (WARPS - 1) * 32) __syncthreads();
}
