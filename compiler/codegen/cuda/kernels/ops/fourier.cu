// Fourier transforms of order LENGTH in stages of the orders ORDERS (ops/products/fourier_plan.py), of WIDE lines by a block. A line
// is (o, m, i) of [., MIDDLE, INNER]; its number t is number m + t * MIDDLE of the whole transform. The first stage reads and the last
// one writes global memory; between two stages a number waits in shared memory. A stage is computed by threads that are next to each
// other along lines, or across them if ACROSS, as memory is.
// CHIRPED: the convolution with a chirp, which takes the stages twice.
// HALVED: 1 if what is read, 2 if what is written are pairs of reals; PAIRED: a pair is one word of memory.

__device__ __forceinline__ Complex times(Complex x, Complex y) {
  return {fused(x.re, y.re, -(x.im * y.im)), fused(x.re, y.im, x.im * y.re)};
}
__device__ __forceinline__ Complex conjugate(Complex x) { return {x.re, -x.im}; }
// A number that stands for its conjugate, too.
__device__ __forceinline__ Complex doubled(Complex x, int number) {
  return number == 0 || 2 * number == COUNT ? x : Complex{x.re + x.re, x.im + x.im};
}

// Numbers at steps of a power of 2 are in different banks.
__device__ __forceinline__ int place(int line, int t) { return line * PITCH + t + t / 16; }

template <int R, int BEFORE, bool ACROSS, bool HELD_BEFORE, bool HELD_AFTER, class Read, class Write>
__device__ __forceinline__ void stage(const Complex *__restrict__ roots, Read read, Write write) {
  constexpr int APART = LENGTH / R, ITEMS = WIDE * APART, EACH = (ITEMS + THREADS - 1) / THREADS;
  Complex v[EACH][R];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int item = e * THREADS + threadIdx.x;
    if (ITEMS % THREADS == 0 || item < ITEMS) {
      const int line = ACROSS ? item % WIDE : item / APART, j = ACROSS ? item / WIDE : item % APART;
#pragma unroll
      for (int q = 0; q < R; ++q) v[e][q] = read(line, j + q * APART);
      if (BEFORE > 1) {
#pragma unroll
        for (int q = 1; q < R; ++q) v[e][q] = times(v[e][q], roots[(q - 1) * BEFORE + j % BEFORE]);
      }
      butterfly(v[e]);
    }
  }
  if (HELD_BEFORE && HELD_AFTER) __syncthreads();
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int item = e * THREADS + threadIdx.x;
    if (ITEMS % THREADS == 0 || item < ITEMS) {
      const int line = ACROSS ? item % WIDE : item / APART, j = ACROSS ? item / WIDE : item % APART;
#pragma unroll
      for (int q = 0; q < R; ++q) write(line, j / BEFORE * (BEFORE * R) + j % BEFORE + q * BEFORE, v[e][q]);
    }
  }
  if (HELD_AFTER) __syncthreads();
}

// The stages after those with the product BEFORE. HELD_BEFORE, HELD_AFTER: what is read, or written last, is in shared memory.
template <bool HELD_BEFORE, bool HELD_AFTER, int BEFORE, int R, int... REST, class Read, class Write>
__device__ __forceinline__ void stages(Complex *held, const Complex *__restrict__ roots, Read read, Write write) {
  constexpr bool LAST = sizeof...(REST) == 0, ACROSS = HELD_BEFORE || LAST ? ACROSS_WRITTEN : ACROSS_READ;
  if constexpr (LAST) {
    stage<R, BEFORE, ACROSS, HELD_BEFORE, HELD_AFTER>(roots, read, write);
  } else {
    stage<R, BEFORE, ACROSS, HELD_BEFORE, true>(roots, read, [=](int line, int t, Complex x) { held[place(line, t)] = x; });
    const auto again = [=](int line, int t) { return held[place(line, t)]; };
    stages<true, HELD_AFTER, BEFORE * R, REST...>(held, roots + (BEFORE > 1 ? (R - 1) * BEFORE : 0), again, write);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(ARGUMENTS, NUMBERS) {
  const Numbers s = GIVEN;
  wait_for_those_before();
  extern __shared__ __align__(16) unsigned char memory[];
  Complex *held = reinterpret_cast<Complex *>(memory);
  const Complex *roots = reinterpret_cast<const Complex *>(table) + FIRST_ROOT;
  const int first = blockIdx.x * WIDE;
  const auto whole = [=](int line, int &middle, int &inner) {  // the number of the whole transform, and the place in it
    const int above = quotient(first + line, s.INNER_magic, s.INNER_shift);
    inner = first + line - above * s.INNER;
    middle = above % MIDDLE;
    return above / MIDDLE;
  };
  const auto number_at = [=](int line, int number) {
    int m, i;
    const long long o = whole(line, m, i);
    Complex found = {SUM(0), SUM(0)};
    if (first + line < s.LINES && number < READ_SIZE) found = READ((o * READ_SIZE + number) * s.INNER + i);
    return TWICE_READ ? doubled(found, number) : found;
  };
  const auto write_at = [=](int line, int number, Complex x) {
    int m, i;
    const long long o = whole(line, m, i);
    if (TWICE_WRITTEN) x = doubled(x, number);
    if (first + line < s.LINES && number < WRITTEN_SIZE) WRITE((o * WRITTEN_SIZE + number) * s.INNER + i, x);
  };
#if HALVED == 1
  const auto read = [=](int line, int t) {
#if PAIRED
    if (first + line >= s.LINES || 2 * t >= READ_SIZE) return Complex{SUM(0), SUM(0)};
    const Lanes<T, 2> both = Lanes<T, 2>::read(x0 + (long long)(first + line) * READ_SIZE + 2 * t);
    return Complex{wide(both.x[0]), wide(both.x[1])};
#else
    return Complex{number_at(line, 2 * t).re, number_at(line, 2 * t + 1).re};
#endif
  };
  const auto write = [=](int line, int t, Complex x) { held[place(line, t)] = x; };
  constexpr bool HELD_LAST = true;
#elif HALVED == 2
  const Complex *pair_roots = roots + PAIR_ROOTS;
  const auto hermitian = [=](int line, int t) {  // number t of the numbers whose transform is real
    const Complex x = number_at(line, t);
    if (t % HALF == 0) return Complex{x.re, SUM(0)};
    const Complex y = READ_SIZE > HALF + 1 ? number_at(line, COUNT - t) : Complex{SUM(0), SUM(0)};
    return Complex{SUM(0.5) * (x.re + y.re), SUM(0.5) * (x.im - y.im)};
  };
  const auto read = [=](int line, int t) {
    if (t >= HALF) return Complex{SUM(0), SUM(0)};
    const Complex x = hermitian(line, t), y = conjugate(hermitian(line, HALF - t));
    const Complex turned = times({x.re - y.re, x.im - y.im}, pair_roots[t]);
    return Complex{x.re + y.re - turned.im, x.im + y.im + turned.re};
  };
  const auto write = [=](int line, int t, Complex x) {
#if PAIRED
    if (first + line >= s.LINES || 2 * t >= WRITTEN_SIZE) return;
    Lanes<T, 2> both;
    store(&both.x[0], x.re SCALED);
    store(&both.x[1], x.im SCALED);
    both.write(y0 + (long long)(first + line) * WRITTEN_SIZE + 2 * t);
#else
    write_at(line, 2 * t, {x.re, SUM(0)});
    write_at(line, 2 * t + 1, {x.im, SUM(0)});
#endif
  };
  constexpr bool HELD_LAST = false;
#else
  const auto place_of = [=](int line, int t, bool near) {  // the number of the whole transform
    int m, i;
    whole(line, m, i);
    return near ? m * LENGTH + t : m + t * MIDDLE;
  };
  const auto read = [=](int line, int t) { return number_at(line, place_of(line, t, NEAR)); };
  const auto write = [=](int line, int t, Complex x) { write_at(line, place_of(line, t, false), x); };
  constexpr bool HELD_LAST = false;
#endif
#if CHIRPED
  const Complex *chirp = roots + STAGE_ROOTS, *filter = chirp + CHIRP;
  const auto chirped = [=](int line, int t) { return t < CHIRP ? times(read(line, t), chirp[t]) : Complex{SUM(0), SUM(0)}; };
  const auto filtered = [=](int line, int t, Complex x) { held[place(line, t)] = conjugate(times(x, filter[t])); };
  const auto unchirped = [=](int line, int t, Complex x) {
    if (t < CHIRP) write(line, t, times(conjugate(x), chirp[t]));
  };
  const auto again = [=](int line, int t) { return held[place(line, t)]; };
  stages<false, true, 1, ORDERS>(held, roots, chirped, filtered);
  stages<true, HELD_LAST, 1, ORDERS>(held, roots, again, unchirped);
#else
  stages<false, HELD_LAST, 1, ORDERS>(held, roots, read, write);
#endif
#if HALVED == 1
  constexpr int PAIRS = HALF / 2 + 1;
  for (int item = threadIdx.x; item < WIDE * PAIRS; item += THREADS) {
    const int line = ACROSS_WRITTEN ? item % WIDE : item / PAIRS, k = ACROSS_WRITTEN ? item / WIDE : item % PAIRS;
    const Complex x = held[place(line, k)], y = conjugate(held[place(line, k ? HALF - k : 0)]);
    const Complex even = {SUM(0.5) * (x.re + y.re), SUM(0.5) * (x.im + y.im)};
    const Complex odd = times({SUM(0.5) * (x.im - y.im), SUM(0.5) * (y.re - x.re)}, roots[PAIR_ROOTS + k]);
    const Complex low = {even.re + odd.re, even.im + odd.im}, high = {even.re - odd.re, odd.im - even.im};
    write_at(line, k, low);
    write_at(line, HALF - k, high);
    if (WRITTEN_SIZE > HALF + 1 && k > 0) {
      write_at(line, COUNT - k, conjugate(low));
      write_at(line, HALF + k, conjugate(high));
    }
  }
#endif
}
