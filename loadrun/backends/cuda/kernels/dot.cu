// Sums of products of two vectors, `each` for a block, in a fixed order.
extern "C" __global__ void __launch_bounds__(256)
$NAME($INPUTS $YT *__restrict__ y, int items, int count, int each $SCALARS) {
  __shared__ $ACC sums[256];
  int tid = (int)threadIdx.x;
  i64 begin = (i64)blockIdx.x * each, end = begin + each < count ? begin + each : count;
  $ACC acc = 0;
  for (i64 k = begin + tid; k < end; k += 256) acc += $VALUE;
  sums[tid] = acc;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (tid < half) sums[tid] += sums[tid + half];
  }
  __syncthreads();
  if (tid == 0) $STORE;
}
