// The permutation of exchanges (k, target[n - 1 - k]) for k = n - 1 to 1, one after the other, by
// one block: exchanges that touch no place of an earlier pending one are done together. `claim` is
// scratch. Source: Shun, Gu, Blelloch, Fineman and Gibbons, "Sequential random permutation, list
// contraction and tree contraction are highly parallel" (2015).
extern "C" __global__ void __launch_bounds__(1024)
$NAME(const int *__restrict__ target, int *order, int *claim, int items, int n) {
  __shared__ int pending;
  int tid = (int)threadIdx.x;
  for (int k = tid; k < n; k += 1024) {
    order[k] = k;
    claim[k] = -1;
  }
  __syncthreads();
  for (int top = n - 1; top > 0; top -= 1024) {
    int k = top - tid, other = k > 0 ? target[n - 1 - k] : 0;
    bool waits = k > 0;
    for (;;) {
      if (tid == 0) pending = 0;
      if (waits) {
        atomicMax(&claim[k], k);
        atomicMax(&claim[other], k);
      }
      __syncthreads();
      bool mine = waits && claim[k] == k && claim[other] == k;
      if (mine) {
        int held = order[k];
        order[k] = order[other];
        order[other] = held;
      }
      if (waits && !mine) pending = 1;
      __syncthreads();
      int more = pending;
      if (waits) {
        claim[k] = -1;
        claim[other] = -1;
      }
      waits = waits && !mine;
      __syncthreads();
      if (!more) break;
    }
  }
}
