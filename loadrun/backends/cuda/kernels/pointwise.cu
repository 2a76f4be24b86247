extern "C" __global__ void __launch_bounds__(256)
$NAME($POINTERS $YT *__restrict__ y, int items $INTS $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  $INDEX
  $BODY
  narrow(y[i], $RESULT);
}
