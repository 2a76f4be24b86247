// F(4x4, 3x3): the 36 values of each channel and tile of 6 x 6 pixels, as (value, channel, tile).
extern "C" __global__ void __launch_bounds__(128)
$NAME(const float *__restrict__ x, float *__restrict__ v, int items, int tiles, int across,
      int down, int H, int W, int ph, int pw, int xn, int xc, int xh, int xw) {
  int i = (int)(blockIdx.x * 128 + threadIdx.x);
  if (i >= items) return;
  int c = i / tiles, t = i - c * tiles;
  int r = t / across, tx = t - r * across, n = r / down, ty = r - n * down;
  const float *from = x + n * xn + c * xc;
  auto along = [](const float (&d)[6], float (&e)[6]) {
    $TRANSFORM
  };
  float rows[6][6];
#pragma unroll
  for (int a = 0; a < 6; a++) {
    int iy = ty * 4 - ph + a;
    float d[6];
#pragma unroll
    for (int b = 0; b < 6; b++) {
      int ix = tx * 4 - pw + b;
      bool inside = (unsigned)iy < (unsigned)H && (unsigned)ix < (unsigned)W;
      d[b] = inside ? from[iy * xh + ix * xw] : 0.f;
    }
    along(d, rows[a]);
  }
#pragma unroll
  for (int b = 0; b < 6; b++) {
    float d[6], e[6];
#pragma unroll
    for (int a = 0; a < 6; a++) d[a] = rows[a][b];
    along(d, e);
#pragma unroll
    for (int a = 0; a < 6; a++) v[(a * 6 + b) * items + i] = e[a];
  }
}
