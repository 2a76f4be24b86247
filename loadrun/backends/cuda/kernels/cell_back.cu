// The gradient of one step of a recurrent layer: of its pre-activations, for the step before it and
// for the sums over all steps, and of the old cell state.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ dh_next, const float *__restrict__ dy, const float *__restrict__ dc_next,
      const float *__restrict__ kept, float *__restrict__ d_pre, float *__restrict__ every,
      float *__restrict__ dc_old, int items, int hidden, int pitch, int base, int step) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int b = i / hidden, k = i - b * hidden;
  const float *keep = kept + (i64)step * $PLANES * items + i;
  float dh = dh_next[i] + dy[(i64)base + (i64)b * pitch + k], dc = dc_next[i];
  float *to = d_pre + (i64)b * $GATES * hidden + k;
  $BODY
  dc_old[i] = dc;
  for (int g = 0; g < $GATES; g++)
    every[((i64)step * (items / hidden) + b) * $GATES * hidden + g * hidden + k] = to[g * hidden];
}
