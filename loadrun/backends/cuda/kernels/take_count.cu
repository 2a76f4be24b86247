// How many of each 1024 elements pass a test.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $MT *__restrict__ mask, int *__restrict__ counts, int items, $LT limit, float eps) {
  __shared__ int sums[8];
  int tid = (int)threadIdx.x, first = (int)blockIdx.x * 1024 + tid * 4, total = 0;
  for (int k = first; k < min(first + 4, items); k++) {
    auto v = widen(mask[k]);
    total += $TEST ? 1 : 0;
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
  if (tid % 32 == 0) sums[tid / 32] = total;
  __syncthreads();
  if (tid) return;
  total = 0;
  for (int k = 0; k < 8; k++) total += sums[k];
  counts[blockIdx.x] = total;
}
