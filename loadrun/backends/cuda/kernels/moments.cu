// Normalisation of rows: mean and 1 / sqrt(variance + eps) of `count` elements next to each other, a
// block a row; then y = (x - mean) * rstd * weight + bias. Weights: see the modes of the body.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $WEIGHTS $XT *__restrict__ y, float *__restrict__ mean_out,
      float *__restrict__ second_out, int rows, int count, int channels, int each, float eps) {
  __shared__ double sums[8];
  int row = (int)blockIdx.x, tid = (int)threadIdx.x;
  const $XT *from = x + (i64)row * count;
  double total = 0;
  for (int k = tid; k < count; k += 256) total += (double)widen(from[k]);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (tid % 32 == 0) sums[tid / 32] = total;
  __syncthreads();
  total = 0;
  for (int k = 0; k < 8; k++) total += sums[k];
  double mean = total / count;
  __syncthreads();
  total = 0;
  for (int k = tid; k < count; k += 256) {
    double d = (double)widen(from[k]) - mean;
    total += d * d;
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (tid % 32 == 0) sums[tid / 32] = total;
  __syncthreads();
  total = 0;
  for (int k = 0; k < 8; k++) total += sums[k];
  double variance = total / count;
  float scale = (float)(1.0 / sqrt(variance + (double)eps)), centre = (float)mean;
  for (int k = tid; k < count; k += 256) {
    int c = $CHANNEL;
    float v = (widen(from[k]) - centre) * scale;
    narrow(y[(i64)row * count + k], $AFFINE);
  }
  if (tid == 0) {
    mean_out[row] = centre;
    second_out[row] = $SECOND;
  }
}
