// One step of a recurrent layer from its pre-activations (b, gates * h): LSTM gates in the order
// input, forget, cell, output. New states go to their own tensors, to a row of y, and to the last
// states of the layer.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ pre, const float *__restrict__ c, float *__restrict__ h_out,
      float *__restrict__ c_out, float *__restrict__ y, float *__restrict__ hy,
      float *__restrict__ cy, float *__restrict__ gates, int items, int hidden, int pitch, int base,
      int state) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int b = i / hidden, k = i - b * hidden;
  $BODY
  h_out[i] = h;
  c_out[i] = cell;
  y[base + b * pitch + k] = h;
  hy[state + i] = h;
  cy[state + i] = cell;
}
