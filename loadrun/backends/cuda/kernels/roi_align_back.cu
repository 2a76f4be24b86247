// Gradient of samples of regions for the images: every element gathers from the list of its pixel.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $GT *__restrict__ dy, const int *__restrict__ index, const int *__restrict__ heads,
      const int *__restrict__ next, const float *__restrict__ weights, $YT *__restrict__ dx,
      int items, int C, int plane, int bins, int samples) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / plane, p = i - q * plane, n = q / C, c = q - n * C;
  double total = 0;
  for (int j = heads[n * plane + p]; j >= 0; j = next[j]) {
    int u = j / 4, r = u / samples, s = u - r * samples, m = r / bins;
    int at = (m * C + c) * bins + (r - m * bins);
    float g = $SHARE;
    total += (double)g * (double)weights[j];
  }
  narrow(dx[i], (float)total);
}
