// Mean and variance of the elements of each row, which lie in two nested strides: a block a row.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, float *__restrict__ mean_out, float *__restrict__ variance_out,
      int rows, int count, int split, int far, int near, int n1, int r0, int r1) {
  __shared__ double sums[8];
  int row = (int)blockIdx.x, tid = (int)threadIdx.x;
  const $XT *from = x + row / split * far + row % split * near;
  double total = 0;
  for (int k = tid; k < count; k += 256) total += (double)widen(from[k / n1 * r0 + k % n1 * r1]);
  double mean = block_total(total, sums) / count;
  __syncthreads();
  total = 0;
  for (int k = tid; k < count; k += 256) {
    double d = (double)widen(from[k / n1 * r0 + k % n1 * r1]) - mean;
    total += d * d;
  }
  double variance = block_total(total, sums) / count;
  if (tid == 0) {
    mean_out[row] = (float)mean;
    variance_out[row] = (float)variance;
  }
}
