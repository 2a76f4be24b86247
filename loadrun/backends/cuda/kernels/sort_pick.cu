// The first `kept` of sorted rows, from the greatest down where descending; or the last of them only.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const int *__restrict__ places, $XT *__restrict__ values,
      int *__restrict__ indices, int items, int n, int kept, int descending, int only) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / kept, k = i - row * kept;
  i64 from = (i64)row * n + (descending ? n - 1 - k : k);
  if (only) {
    if (k == kept - 1) values[row] = x[from];
  } else {
    values[i] = x[from];
    indices[i] = places[from];
  }
}
