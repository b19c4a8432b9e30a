// Lets the kernel after this one begin as soon as all blocks of this one have: it waits for this one's end before it reads or
// writes. So launches overlap, and what the next kernel knows to be constant comes nearer in the meantime.
__device__ __forceinline__ void let_the_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Brings a line of memory to the L2 cache. All processors write through it, so nothing that is written later is missed.
__device__ __forceinline__ void bring_near(const void *from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
