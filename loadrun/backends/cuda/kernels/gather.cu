// y[i] = the element that map[i] counts among all sources, one after the other; below 0: the fill.
extern "C" __global__ void __launch_bounds__(256)
$NAME($SOURCES, const int *__restrict__ map, const $T *__restrict__ fill, $T *__restrict__ y,
      int items) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int m = map[i];
  y[i] = m < 0 ? fill[-1 - m] : $PICK;
}
