// Merges pairs of sorted runs of `width` elements of each row: an element's place is its own in its
// run and the number of elements of the other run that go before it. Stable.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const int *__restrict__ places, $XT *__restrict__ values,
      int *__restrict__ indices, int items, int n, int width) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / n, k = i - row * n, run = k / width, begin = run * width, at = k - begin;
  bool second = run & 1;
  int first = second ? begin - width : begin;
  // The other run; where a row ends there may be none.
  int low = min(second ? first : begin + width, n), high = min(low + width, n), base = low;
  const $XT *from = x + (i64)row * n;
  auto v = widen(from[k]);
  while (low < high) {
    int middle = low + (high - low) / 2;
    auto u = widen(from[middle]);
    bool less = u < v || (v != v && u == u), same = u == v || (u != u && v != v);
    if (less || (second && same)) low = middle + 1;
    else high = middle;
  }
  i64 place = (i64)row * n + first + at + (low - base);
  values[place] = from[k];
  indices[place] = places[i];
}
