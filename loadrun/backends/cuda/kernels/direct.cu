// One output element a thread: depthwise convolutions and groups of few channels.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const $WT *__restrict__ w, $EXTRAS $YT *__restrict__ y, int items,
      int oc, int ic, int groups, int D, int H, int W, int OD, int OH, int OW,
      int sd, int sh, int sw, int pd, int ph, int pw, int dd, int dh, int dw,
      int xn, int xc, int xd, int xh, int xw, int wg, int wo, int wk,
      int yn, int yc, int yd, int yh, int yw, int zx, int zw $SCALARS) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int r = i / OW, ox = i - r * OW, q = r / OH, oy = r - q * OH;
  r = q / OD;
  int oz = q - r * OD, channels = oc * groups, n = r / channels, ch = r - n * channels;
  int g = ch / oc, m = ch - g * oc;
  const $WT *wp = w + g * wg + m * wo;
  const $XT *xp = x + n * xn;
  $ACC acc = 0;
  for (int c = 0; c < ic; c++) {
    int cc = g * ic + c;
    const $XT *plane = xp + (cc / $XL) * xc + cc % $XL;
#pragma unroll
    for (int kz = 0; kz < $KD; kz++)
#pragma unroll
      for (int ky = 0; ky < $KH; ky++)
#pragma unroll
        for (int kx = 0; kx < $KW; kx++) {
          int iz = oz * sd - pd + kz * dd, iy = oy * sh - ph + ky * dh, ix = ox * sw - pw + kx * dw;
          bool inside = true;
          if ($TRANSPOSED) {
            iz = oz + pd - kz * dd, iy = oy + ph - ky * dh, ix = ox + pw - kx * dw;
            inside = iz % sd == 0 && iy % sh == 0 && ix % sw == 0;
            iz /= sd, iy /= sh, ix /= sw;
            inside = inside && oz + pd - kz * dd >= 0 && oy + ph - ky * dh >= 0 &&
                     ox + pw - kx * dw >= 0;
          }
          if (inside && (unsigned)iz < (unsigned)D && (unsigned)iy < (unsigned)H &&
              (unsigned)ix < (unsigned)W) {
            auto a = widen(plane[iz * xd + iy * xh + ix * xw]);
            const int tap = (kz * $KH + ky) * $KW + kx;
            auto b = widen(wp[($TAPS_FIRST ? tap * ic + c : c * $KD * $KH * $KW + tap) * wk]);
            acc = $MAC;
          }
        }
  }
  int o = n * yn + (ch / $YL) * yc + ch % $YL + oz * yd + oy * yh + ox * yw;
  int px = ((n * OD + oz) * OH + oy) * OW + ox;
  $BODY
  narrow(y[o], $RESULT);
}
