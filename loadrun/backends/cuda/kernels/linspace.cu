// Numbers at equal distances from a first to a last one, which are known at run time only.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $AT *__restrict__ start, const $BT *__restrict__ stop, float *__restrict__ y, int items,
      int parts) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  double first = (float)widen(start[0]), last = (float)widen(stop[0]);
  y[i] = (float)(first + (double)i * ((last - first) / (double)parts));
}
