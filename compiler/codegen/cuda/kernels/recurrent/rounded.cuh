__device__ __forceinline__ float rounded_bf16(float x) {
  bf16 y;
  store(&y, x);
  return wide(y);
}
__device__ __forceinline__ float rounded_f16(float x) {
  f16 y;
  store(&y, x);
  return wide(y);
}
__device__ __forceinline__ bool wide(bool x) { return x; }
__device__ __forceinline__ void store(bool *to, bool x) { *to = x; }
__device__ __forceinline__ float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? x : 0.0f; }
