// Tensors (outer, n, inner) joined along n, of each only as much as was counted; zeros behind.
extern "C" __global__ void __launch_bounds__(256)
$NAME($SOURCES $T *__restrict__ y, int items, int room, int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, a = q / room, j = q - a * room;
  $T found = 0;
  $PICK
  y[i] = found;
}
