// base = k + alpha * sum of squares of near channels, and dy * y / base, of each element.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $YT *__restrict__ y, const $GT *__restrict__ dy,
      float *__restrict__ base, float *__restrict__ part, int items, int channels, int plane,
      int far, float k, float alpha) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  float found = lrn_base(x, i, channels, plane, far, k, alpha);
  base[i] = found;
  part[i] = widen(dy[i]) * widen(y[i]) / found;
}
