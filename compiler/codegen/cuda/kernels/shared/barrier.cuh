// A barrier of all blocks, which must be on the device at once. Whatever a block wrote before it arrived is there for all that
// have waited: its threads come together first, and the release and the acquire order what they did.
struct Barrier {
  unsigned *arrived; // 0 before the kernel
  unsigned target;
  __device__ __forceinline__ void arrive() {
    target += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      unsigned now;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
      while (now < target);
    }
    __syncthreads();
  }
};
