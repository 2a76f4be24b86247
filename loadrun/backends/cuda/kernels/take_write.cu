// The elements that pass a test, next to each other in their order, and their positions; zeros
// behind them.
extern "C" __global__ void __launch_bounds__(256)
$NAME($DATA const $MT *__restrict__ mask, const int *__restrict__ offsets,
      const int *__restrict__ total, $VALUES int *__restrict__ indices, int items, $LT limit,
      float eps) {
  __shared__ int sums[256];
  int tid = (int)threadIdx.x, first = (int)blockIdx.x * 1024 + tid * 4, own = 0;
  bool passes[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    passes[k] = false;
    if (first + k < items) {
      auto v = widen(mask[first + k]);
      passes[k] = $TEST;
    }
    own += passes[k];
  }
  sums[tid] = own;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int more = tid >= step ? sums[tid - step] : 0;
    __syncthreads();
    sums[tid] += more;
    __syncthreads();
  }
  int at = offsets[blockIdx.x] + sums[tid] - own, count = *total;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    int i = first + k;
    if (passes[k]) {
      $STORE
      indices[at++] = i;
    }
    if (i < items && i >= count) {
      $CLEAR
      indices[i] = 0;
    }
  }
}
