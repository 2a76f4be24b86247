// Sets a flag where an element passes a test.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, int *__restrict__ flag, int items) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  float v = widen(x[i]);
  if ($TEST) *flag = 1;
}
