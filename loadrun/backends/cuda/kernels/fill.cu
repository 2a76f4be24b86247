// The same 32 bits everywhere.
extern "C" __global__ void __launch_bounds__(256)
$NAME(int *__restrict__ y, int items, int value) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i < items) y[i] = value;
}
