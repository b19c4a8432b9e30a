// Whether element a at i comes before b at j: a strict order of all, where nan counts as greatest.
__device__ __forceinline__ bool ahead(KEY a, int i, KEY b, int j) {
  const bool lost_a = a != a, lost_b = b != b;
  if (lost_a != lost_b) return LARGEST ? lost_a : lost_b;
  if (a == b || lost_a) return i < j;
  return LARGEST ? a > b : a < b;
}

