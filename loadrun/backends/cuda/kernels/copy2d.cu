// Rows of `width` elements, next to each other in x, at distance `pitch` in y.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $T *__restrict__ x, $T *__restrict__ y, int items, int width, int pitch, int offset) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int row = i / width;
  y[row * pitch + offset + (i - row * width)] = x[i];
}
