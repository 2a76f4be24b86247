// A slice of an axis: x is (outer, n, inner), y (outer, room, inner); zeros behind the count.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, const int *__restrict__ start, const int *__restrict__ total,
      $T *__restrict__ y, int items, int n, int room, int inner, int step) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, a = q / room, j = q - a * room;
  y[i] = j < *total ? x[(a * n + *start + j * step) * inner + e] : ($T)0;
}
