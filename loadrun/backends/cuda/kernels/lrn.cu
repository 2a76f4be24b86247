// y = x * (k + alpha * sum of squares of channels at most `far` away) ^ -beta.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, int items, int channels, int plane, int far,
      float k, float alpha, float beta) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  narrow(y[i], widen(x[i]) * powf(lrn_base(x, i, channels, plane, far, k, alpha), -beta));
}
