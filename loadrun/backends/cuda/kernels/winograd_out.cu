// F(4x4, 3x3): 4 x 4 sums of each output channel and tile from 36 values, and what becomes of them.
extern "C" __global__ void __launch_bounds__(128)
$NAME(const float *__restrict__ v, $EXTRAS $YT *__restrict__ y, int items, int M, int tiles,
      int across, int down, int OH, int OW, int yn, int yg, int yc, int yd, int yh, int yw $SCALARS) {
  int i = (int)(blockIdx.x * 128 + threadIdx.x);
  if (i >= items) return;
  const int g = 0, m = i / tiles, t = i - m * tiles;
  int r = t / across, tx = t - r * across, n = r / down, ty = r - n * down;
  auto along = [](const float (&d)[6], float (&e)[4]) {
    $TRANSFORM
  };
  float rows[6][4];
#pragma unroll
  for (int a = 0; a < 6; a++) {
    float d[6];
#pragma unroll
    for (int b = 0; b < 6; b++) d[b] = v[(a * 6 + b) * items + i];
    along(d, rows[a]);
  }
#pragma unroll
  for (int b = 0; b < 4; b++) {
    float d[6], e[4];
#pragma unroll
    for (int a = 0; a < 6; a++) d[a] = rows[a][b];
    along(d, e);
    int ox = tx * 4 + b;
#pragma unroll
    for (int a = 0; a < 4; a++) {
      int oy = ty * 4 + a;
      if (ox >= OW || oy >= OH) continue;
      int px = (n * OH + oy) * OW + ox, pixel = n * yn + oy * yh + ox * yw;
      float acc = e[a];
      $STORE
    }
  }
}
