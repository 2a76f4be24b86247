// First element and number of elements of a slice of an axis of n elements, as python counts them.
extern "C" __global__ void __launch_bounds__(32)
$NAME($ENDS int *__restrict__ start, int *__restrict__ total, int *__restrict__ status, int slot,
      int items, int n, int step) {
  if (blockIdx.x * 32 + threadIdx.x) return;
  int low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  i64 begin = step > 0 ? low : high, end = step > 0 ? high : low;
  $READ
  if (begin > high) begin = high;
  if (end > high) end = high;
  i64 length = step > 0 ? end - begin : begin - end, each = step > 0 ? step : -(i64)step;
  *start = (int)begin;
  *total = length > 0 ? (int)((length + each - 1) / each) : 0;
}
