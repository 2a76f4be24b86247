// Gradients of a normalisation for its weight and bias: a block a channel.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $GT *__restrict__ dy, const $XT *__restrict__ x, const $MT *__restrict__ centres,
      const $ST *__restrict__ second, $WT *__restrict__ dweight, $WT *__restrict__ dbias,
      int channels, int count, int n1, int q0, int q1, int groups, int each, float eps) {
  __shared__ double sums[8];
  int c = (int)blockIdx.x, tid = (int)threadIdx.x;
  double weight = 0, bias = 0;
  for (int j = tid; j < count; j += 256) {
    int at = j / n1 * q0 + c * q1 + j % n1, row = $ROW;
    float factor = $FACTOR, xhat = (widen(x[at]) - widen(centres[row])) * factor;
    float g = widen(dy[at]);
    weight += (double)(g * xhat);
    bias += (double)g;
  }
  weight = block_total(weight, sums);
  __syncthreads();
  bias = block_total(bias, sums);
  if (tid == 0) {
    narrow(dweight[c], (float)weight);
    narrow(dbias[c], (float)bias);
  }
}
