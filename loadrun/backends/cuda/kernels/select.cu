// Places of a selection by slices and index tensors: `at` counts elements (or rows of `inner`
// elements) of the tensor that is selected from. What is done with a place: $WHAT.
extern "C" __global__ void __launch_bounds__(256)
$NAME($DATA int *__restrict__ status, int slot, int items, int base $PARAMS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  $INDEX
  int at = base$LINEAR;
  $FIND
  $STORE
}
