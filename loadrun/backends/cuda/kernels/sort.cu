// Every element of a row finds its place by counting those before it: exact and stable for rows
// that are not long. NaN is the greatest; of equals the first comes first, or last when descending.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ values, int *__restrict__ indices, int items,
      int n, int kept, int descending, int only) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / n, k = i - row * n;
  const $XT *from = x + row * n;
  auto v = widen(from[k]);
  int place = 0;
  for (int j = 0; j < n; j++) {
    auto u = widen(from[j]);
    bool less = u < v || (v != v && u == u), same = u == v || (u != u && v != v);
    place += less || (same && j < k);
  }
  if (descending) place = n - 1 - place;
  if (only) {
    if (place == kept - 1) values[row] = from[k];
  } else if (place < kept) {
    values[row * kept + place] = from[k];
    indices[row * kept + place] = k;
  }
}
