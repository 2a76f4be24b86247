// Sums of all numbers before each, and of all: one block.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const int *__restrict__ counts, int *__restrict__ offsets, int *__restrict__ total, int items) {
  __shared__ int sums[256];
  int tid = (int)threadIdx.x, before = 0;
  for (int base = 0; base < items; base += 256) {
    int own = base + tid < items ? counts[base + tid] : 0;
    sums[tid] = own;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
      int more = tid >= step ? sums[tid - step] : 0;
      __syncthreads();
      sums[tid] += more;
      __syncthreads();
    }
    if (base + tid < items) offsets[base + tid] = before + sums[tid] - own;
    before += sums[255];
    __syncthreads();
  }
  if (tid == 0) *total = before;
}
