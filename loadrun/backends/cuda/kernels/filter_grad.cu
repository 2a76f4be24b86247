// Gradient of a convolution for its filter (groups, outputs, depth, taps), a block an element: for
// groups of few channels. Gradients are (groups, outputs, images, d, h, w), next to each other.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $GT *__restrict__ dy, $YT *__restrict__ y, int items, int O,
      int I, int N, int D, int H, int W, int OD, int OH, int OW, int KD, int KH, int KW, int sd,
      int sh, int sw, int pd, int ph, int pw, int dd, int dh, int dw, int xn, int xc, int xd,
      int xh, int xw) {
  __shared__ double sums[8];
  int r = (int)blockIdx.x, tid = (int)threadIdx.x;
  int kx = r % KW, q = r / KW, ky = q % KH, t = q / KH, kz = t % KD, u = t / KD;
  int i = u % I, go = u / I, g = go / O;
  const $GT *given = dy + (i64)go * N * OD * OH * OW;
  const $XT *from = x + (g * I + i) * xc;
  float part = 0;
  for (int j = tid; j < N * OD * OH * OW; j += 256) {
    int a = j / OW, ox = j - a * OW, b = a / OH, oy = a - b * OH, n = b / OD, oz = b - n * OD;
    int iz = oz * sd - pd + kz * dd, iy = oy * sh - ph + ky * dh, ix = ox * sw - pw + kx * dw;
    bool inside = (unsigned)iz < (unsigned)D && (unsigned)iy < (unsigned)H && (unsigned)ix < (unsigned)W;
    if (inside) part = fmaf(widen(from[n * xn + iz * xd + iy * xh + ix * xw]), widen(given[j]), part);
  }
  double total = block_total((double)part, sums);
  __syncthreads();
  if (tid == 0) narrow(y[r], (float)total);
}
