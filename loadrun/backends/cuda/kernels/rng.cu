// Numbers of xoroshiro128+, the very ones that a sequential generator gives: a thread moves the
// state to its place and makes `each` of them. Source: Blackman and Vigna (2018), version of 2016.
$JUMP
extern "C" __global__ void __launch_bounds__(256)
$NAME(const u64 *__restrict__ state, const u64 *__restrict__ table, $PARAMS int items, int each
      $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  i64 first = (i64)i * each;
  if (first >= items) return;
  u64 low = state[0], high = state[1];
  jump_$NAME(low, high, table, (u32)first);
  float before = 0.f;
  for (int at = (int)first; at < items && at - (int)first < each; at++) {
    u64 word = low + high;
    high ^= low;
    low = (low << 55 | low >> 9) ^ high ^ high << 14;
    high = high << 36 | high >> 28;
    $EMIT
  }
}
