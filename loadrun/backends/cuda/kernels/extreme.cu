// Position of the first extreme of each line of x (outer, n, inner); NaN counts as one.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, int *__restrict__ y, int items, int n, int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int a = i / inner;
  const $XT *from = x + (i64)a * n * inner + (i - a * inner);
  auto best = widen(from[0]);
  int at = 0;
  for (int k = 1; k < n && best == best; k++) {
    auto v = widen(from[(i64)k * inner]);
    if (v $SIGN best || v != v) {
      best = v;
      at = k;
    }
  }
  y[i] = at;
}
