// y * (dy - sum of y * dy) along an axis: a warp a row, elements `inner` apart.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ y, const $GT *__restrict__ dy, $XT *__restrict__ dx, int rows,
      int count, int inner) {
  int row = (int)(blockIdx.x * 8 + threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
  bool valid = row < rows;
  if (!valid) row = 0;
  int outer = row / inner, base = outer * count * inner + (row - outer * inner);
  double total = 0;
  for (int k = lane; k < count; k += 32) {
    int at = base + k * inner;
    total += (double)(widen(y[at]) * widen(dy[at]));
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (valid)
    for (int k = lane; k < count; k += 32) {
      int at = base + k * inner;
      narrow(dx[at], widen(y[at]) * (widen(dy[at]) - (float)total));
    }
}
