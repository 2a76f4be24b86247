// exp(x - max) / sum along an axis: a warp a row, elements `stride` apart.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int rows, int count, int inner) {
  int row = (int)(blockIdx.x * 8 + threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
  bool valid = row < rows;
  if (!valid) row = 0;
  int outer = row / inner;
  const $XT *from = x + outer * count * inner + (row - outer * inner);
  $XT *to = y + outer * count * inner + (row - outer * inner);
  float top = -INFINITY;
  bool odd = false;
  for (int k = lane; k < count; k += 32) {
    float v = widen(from[k * inner]);
    odd = odd || v != v;
    top = v > top ? v : top;
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    float v = __shfl_xor_sync(0xffffffffu, top, other);
    odd = __shfl_xor_sync(0xffffffffu, (int)odd, other) || odd;
    top = v > top ? v : top;
  }
  if (odd) top = NAN;
  float total = 0.f;
  for (int k = lane; k < count; k += 32) total += expf(widen(from[k * inner]) - top);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (valid)
    for (int k = lane; k < count; k += 32)
      narrow(to[k * inner], expf(widen(from[k * inner]) - top) / total);
}
