// A pixel of a map gathers what was read from it: y (parts, each, pixels) is a sum along the list of
// the pixel's entries (`linked.link`), four of them for each point.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const int *__restrict__ heads, const int *__restrict__ next, const float *__restrict__ weights,
      $INPUTS $YT *__restrict__ y, int items, int each, int size $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int map = i / size, part = map / each;
  double total = 0;
  for (int e = heads[part * size + (i - map * size)]; e >= 0; e = next[e]) {
    int point = e >> 2;
    float given = $VALUE;
    total += (double)given * (double)weights[e];
  }
  narrow(y[i], (float)total);
}
