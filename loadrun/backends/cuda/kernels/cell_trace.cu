// One step of a recurrent layer that leaves what its gradient needs: the old state, and the numbers
// of the step, one plane of (batch, hidden) after the other. `step` counts in natural order of time.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ pre, const float *__restrict__ h_old, const float *__restrict__ c,
      float *__restrict__ h_new, float *__restrict__ c_new, float *__restrict__ y,
      float *__restrict__ before, float *__restrict__ kept, int items, int hidden, int pitch,
      int base, int step) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int b = i / hidden, k = i - b * hidden;
  float *keep = kept + (i64)step * $PLANES * items + i;
  $BODY
  h_new[i] = h;
  c_new[i] = cell;
  y[(i64)base + (i64)b * pitch + k] = h;
  before[(i64)step * items + i] = h_old[i];
}
