// A reduction: $LANES threads share one output, whose elements are `count` in three nested strides.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $YT *__restrict__ y, int items, int count,
      int d1, int d2, int s0, int s1, int s2, int n1, int n2, int r0, int r1, int r2 $SCALARS) {
  int i = (int)((blockIdx.x * 256 + threadIdx.x) / $LANES);
  int lane = (int)(threadIdx.x % $LANES);
  bool valid = i < items;
  if (!valid) i = 0;
  int q = i / d2, a = q / d1;
  const $XT *from = x + a * s0 + (q - a * d1) * s1 + (i - q * d2) * s2;
  $ACC acc = $START;
  for (int k = lane; k < count; k += $LANES) {
    int u = k / n2, t = u / n1;
    auto e = widen(from[t * r0 + (u - t * n1) * r1 + (k - u * n2) * r2]);
    $ACC v = $VALUE;
    acc = $STEP;
  }
#pragma unroll
  for (int other = $LANES / 2; other > 0; other /= 2) {
    $ACC v = __shfl_xor_sync(0xffffffffu, acc, other);
    acc = $STEP;
  }
  if (valid && lane == 0) narrow(y[i], $RESULT);
}
