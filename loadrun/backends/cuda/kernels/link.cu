// Entries of the same key as linked lists: heads[key] is an entry, next[entry] the one after it, -1
// the end; entries with a key below 0 belong nowhere. Lists are in no order.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const int *__restrict__ keys, int *__restrict__ heads, int *__restrict__ next, int items) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int key = keys[i];
  next[i] = key < 0 ? -1 : atomicExch(heads + key, i);
}
