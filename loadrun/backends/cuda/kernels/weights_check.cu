// Running sums of rows of weights. Notes rows that no `needed` classes can be drawn by: negative or
// infinite weights, or too few above zero.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, double *__restrict__ sums, int *__restrict__ status, int slot,
      int items, int classes, int needed) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  i64 row = (i64)i * classes;
  int positive = 0;
  bool good = true;
  double sum = 0;
  for (int k = 0; k < classes; k++) {
    float v = widen(x[row + k]);
    good = good && v >= 0.f && v < INFINITY;
    positive += v > 0.f;
    sums[row + k] = sum += (double)v;
  }
  if (!good || positive < needed) *status = slot;
}
