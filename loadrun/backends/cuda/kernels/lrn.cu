// y = x * (k + alpha * sum of squares of channels at most `far` away) ^ -beta.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int channels, int plane, int far,
      float k, float alpha, float beta) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int c = i / plane % channels;
  int first = max(c - far, 0), last = min(c + far, channels - 1);
  double total = 0;
  for (int j = first; j <= last; j++) {
    float v = widen(x[i + (j - c) * plane]);
    total += (double)(v * v);
  }
  narrow(y[i], widen(x[i]) * powf(k + alpha * (float)total, -beta));
}
