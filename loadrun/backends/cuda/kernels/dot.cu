// Sum of products of two vectors by one block, in a fixed order; a vector of one element is repeated.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $AT *__restrict__ a, const $BT *__restrict__ b, $YT *__restrict__ y, int items, int count,
      int step_a, int step_b) {
  __shared__ $ACC sums[256];
  int tid = (int)threadIdx.x;
  $ACC acc = 0;
  for (int k = tid; k < count; k += 256) acc += ($ACC)widen(a[k * step_a]) * ($ACC)widen(b[k * step_b]);
  sums[tid] = acc;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (tid < half) sums[tid] += sums[tid + half];
  }
  __syncthreads();
  if (tid == 0) narrow(y[0], $RESULT);
}
