// A number of a distribution for each element, whose parameters are tensors of the same shape.
$PHILOX
extern "C" __global__ void __launch_bounds__(256)
$NAME($INPUTS const int *__restrict__ turn, $YT *__restrict__ y, int items, int key0, int key1 $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  Random_$NAME random(key0, key1, i, turn[0]);
  $BODY
}
