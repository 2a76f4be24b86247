// Notes an error when an element of x does not pass a test.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, int *__restrict__ status, int slot, int items) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  auto v = widen(x[i]);
  if (!($TEST)) *status = slot;
}
