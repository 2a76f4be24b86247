// Which row an index sends to each place, the last one where several; -1 for none. One block.
extern "C" __global__ void __launch_bounds__(1024)
$NAME(const $IT *__restrict__ index, int *back, int *__restrict__ status, int slot, int items,
      int rows, int count) {
  for (int k = (int)threadIdx.x; k < rows; k += 1024) back[k] = -1;
  __syncthreads();
  for (int k = (int)threadIdx.x; k < count; k += 1024) {
    int at = (int)widen(index[k]);
    if ((unsigned)at >= (unsigned)rows) *status = slot;
    else atomicMax(&back[at], k);
  }
}
