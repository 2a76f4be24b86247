// One pixel a thread; `from` and `to` are its channels.
__device__ __forceinline__ int shifted_$NAME(int v) { return (v + 8192) >> 14; }
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, $T *__restrict__ y, int items, int h, int w) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  $BODY
}
