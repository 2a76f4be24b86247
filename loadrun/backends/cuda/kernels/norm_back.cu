// Gradient of a normalisation for its input: a block a row, whose elements lie in two nested
// strides. `second` is 1 / sqrt(variance + eps) or the variance: see the body.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $GT *__restrict__ dy, const $XT *__restrict__ x, $WEIGHT
      const $MT *__restrict__ centres, const $ST *__restrict__ second, $XT *__restrict__ dx,
      int rows, int count, int split, int far, int near, int n1, int r0, int r1, int groups,
      int each, int plane, float eps) {
  __shared__ double sums[8];
  int row = (int)blockIdx.x, tid = (int)threadIdx.x, base = row / split * far + row % split * near;
  float centre = widen(centres[row]), factor = $FACTOR;
  double first = 0, other = 0;
  for (int k = tid; k < count; k += 256) {
    int at = base + k / n1 * r0 + k % n1 * r1, c = $CHANNEL;
    float xhat = (widen(x[at]) - centre) * factor, g = $SCALED;
    first += (double)g;
    other += (double)(g * xhat);
  }
  float by_one = (float)block_total(first, sums) / (float)count;
  __syncthreads();
  float by_x = (float)block_total(other, sums) / (float)count;
  for (int k = tid; k < count; k += 256) {
    int at = base + k / n1 * r0 + k % n1 * r1, c = $CHANNEL;
    float xhat = (widen(x[at]) - centre) * factor, g = $SCALED;
    narrow(dx[at], factor * (g - by_one - xhat * by_x));
  }
}
