// dy * base ^ -beta - 2 * alpha * beta * x * sum of `part` of near channels.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $GT *__restrict__ dy, const float *__restrict__ base,
      const float *__restrict__ part, $XT *__restrict__ dx, int items, int channels, int plane,
      int far, float slope, float beta) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  double total = sum_of_near(i, channels, plane, far, [&](int j) { return part[j]; });
  narrow(dx[i], widen(dy[i]) * powf(base[i], -beta) - slope * widen(x[i]) * (float)total);
}
