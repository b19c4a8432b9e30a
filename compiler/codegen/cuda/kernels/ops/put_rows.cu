// y = x with the rows of src at ids, for tables [ROWS, WIDTH] of one type; the last of equal ids wins. Where y is x, only
// these rows are written, else all of y. A thread has VEC neighbours. An id that does not exist makes tables of FLOATS nan.
// The text in front says where rows of a src lie: SIZES and STEPS of the axes of a row, ROW_STEP from row to row.

#include "put_rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL(TABLES, SOURCES, const ID *__restrict__ ids, RESULTS) {
  wait_for_those_before();
  WRITE
}
