// An element of each line of x (outer, n, inner), by index (outer, inner); $WHAT.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, const $IT *__restrict__ index, $VALUE $T *__restrict__ y,
      int *__restrict__ status, int slot, int items, int n, int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  $BODY
}
