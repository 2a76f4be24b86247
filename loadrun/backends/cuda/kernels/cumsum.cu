// Running sums of lines of x (outer, n, inner), in float64 or int64.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int n, int inner, int reverse,
      int exclusive) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int a = i / inner;
  i64 base = (i64)a * n * inner + (i - a * inner);
  $ACC acc = 0;
  for (int k = 0; k < n; k++) {
    i64 at = base + (i64)(reverse ? n - 1 - k : k) * inner;
    $ACC v = ($ACC)widen(x[at]);
    if (!exclusive) acc += v;
    narrow(y[at], $RESULT);
    if (exclusive) acc += v;
  }
}
