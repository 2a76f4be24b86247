// Sorts runs of `width` elements of each row by counting, with the places they come from. NaN is
// the greatest; of equals the first comes first.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ values, int *__restrict__ indices, int items,
      int n, int width) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / n, k = i - row * n, begin = k / width * width, end = min(begin + width, n);
  const $XT *from = x + (i64)row * n;
  auto v = widen(from[k]);
  int place = begin;
  for (int j = begin; j < end; j++) {
    auto u = widen(from[j]);
    bool less = u < v || (v != v && u == u), same = u == v || (u != u && v != v);
    place += less || (same && j < k);
  }
  values[(i64)row * n + place] = from[k];
  indices[(i64)row * n + place] = k;
}
