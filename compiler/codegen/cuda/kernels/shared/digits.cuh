// Of the lanes `among`, those whose number has the same low BITS bits as this lane's.
template <int BITS> __device__ __forceinline__ unsigned with_same(unsigned among, int number) {
#pragma unroll
  for (int bit = 0; bit < BITS; ++bit) {
    const bool set = number >> bit & 1;
    const unsigned lanes = __ballot_sync(0xFFFFFFFFu, set);
    among &= set ? lanes : ~lanes;
  }
  return among;
}

