// Leaves the generator where the next run goes on: `count` numbers further.
$JUMP
extern "C" __global__ void __launch_bounds__(32)
$NAME(const u64 *__restrict__ table, u64 *state, int items, int count) {
  if (threadIdx.x) return;
  u64 low = state[0], high = state[1];
  jump_$NAME(low, high, table, (u32)count);
  state[0] = low;
  state[1] = high;
}
