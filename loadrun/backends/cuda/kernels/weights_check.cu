// Notes rows of weights that no `needed` classes can be drawn by: negative or infinite ones, or too
// few above zero.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, int *__restrict__ status, int slot, int items, int classes,
      int needed) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  const $XT *row = x + (i64)i * classes;
  int positive = 0;
  bool good = true;
  for (int k = 0; k < classes; k++) {
    float v = widen(row[k]);
    good = good && v >= 0.f && v < INFINITY;
    positive += v > 0.f;
  }
  if (!good || positive < needed) *status = slot;
}
