// dy * base ^ -beta - 2 * alpha * beta * x * sum of `part` of near channels.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $GT *__restrict__ dy, const float *__restrict__ base,
      const float *__restrict__ part, $XT *__restrict__ dx, int items, int channels, int plane,
      int far, float slope, float beta) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int c = i / plane % channels;
  int first = max(c - far, 0), last = min(c + far, channels - 1);
  double total = 0;
  for (int j = first; j <= last; j++) total += (double)part[i + (j - c) * plane];
  narrow(dx[i], widen(dy[i]) * powf(base[i], -beta) - slope * widen(x[i]) * (float)total);
}
