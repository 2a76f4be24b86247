// Elements picked along axes that are next to each other, by index tensors that are read at run
// time: x is (outer, picked axes, inner), y is (outer, indices, inner).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, $T *__restrict__ y, int *__restrict__ status, int slot, int items,
      int count, int inner, int outer_stride $INDICES) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, a = q / count, j = q - a * count;
  int at = 0;
  $FIND
  y[i] = x[a * outer_stride + at + e];
}
