// x with rows of `inner` elements changed where linked lists say: $WHAT.
extern "C" __global__ void __launch_bounds__(256)
$NAME($SOURCE const $XT *__restrict__ value, const int *__restrict__ heads,
      const int *__restrict__ next, $XT *__restrict__ y, int items, int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / inner, e = i - row * inner;
  $BODY
}
