// Cross products of vectors whose three elements lie `step` apart; dimensions broadcast.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $AT *__restrict__ a, const $BT *__restrict__ b, const int *__restrict__ from_a,
      const int *__restrict__ from_b, const int *__restrict__ to, $YT *__restrict__ y, int items,
      int step_a, int step_b, int step_y) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  const $AT *u = a + from_a[i];
  const $BT *v = b + from_b[i];
  $YT *w = y + to[i];
#pragma unroll
  for (int k = 0; k < 3; k++) {
    int p = (k + 1) % 3, q = (k + 2) % 3;
    float plus = widen(u[p * step_a]) * widen(v[q * step_b]);
    narrow(w[k * step_y], plus - widen(u[q * step_a]) * widen(v[p * step_b]));
  }
}
