// Linked lists brought into ascending order, a thread a list: runs of doubling length are merged,
// so that sums along a list are the same in every run.
extern "C" __global__ void __launch_bounds__(256)
$NAME(int *__restrict__ heads, int *__restrict__ next, int items) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int list = heads[i];
  if (list < 0 || next[list] < 0) return;
  for (int width = 1;; width *= 2) {
    int p = list, tail = -1, merges = 0;
    list = -1;
    while (p >= 0) {
      merges++;
      int q = p, left = 0, right = width;
      while (left < width && q >= 0) {
        left++;
        q = next[q];
      }
      while (left > 0 || (right > 0 && q >= 0)) {
        int e;
        if (left > 0 && !(right > 0 && q >= 0 && q < p)) {
          e = p;
          p = next[p];
          left--;
        } else {
          e = q;
          q = next[q];
          right--;
        }
        if (tail < 0) list = e;
        else next[tail] = e;
        tail = e;
      }
      p = q;
    }
    next[tail] = -1;
    if (merges <= 1) break;
  }
  heads[i] = list;
}
