// Rows of x in the order of an index; a row that no index names is zero.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, const int *__restrict__ order, $T *__restrict__ y, int items,
      int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / inner, from = order[row];
  y[i] = from < 0 ? 0 : x[(i64)from * inner + (i - row * inner)];
}
