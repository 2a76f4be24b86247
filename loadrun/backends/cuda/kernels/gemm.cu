// Convolution as a product of matrices that is never written out: rows are output channels of a
// group, columns the output pixels of all images, the inner dimension channels and taps. A block
// computes $BM x $BN sums, a thread $TM x $TN; the next slices wait in registers meanwhile.
extern "C" __global__ void __launch_bounds__($THREADS)
$NAME(const $XT *__restrict__ x, const $WT *__restrict__ w, $EXTRAS $YT *__restrict__ y,
      int M, int P, int K, int splits, int step, int D, int H, int W, int OD, int OH, int OW,
      int sd, int sh, int sw, int pd, int ph, int pw, int dd, int dh, int dw,
      int xn, int xg, int xc, int xd, int xh, int xw, int wg, int wo, int wk,
      int yn, int yg, int yc, int yd, int yh, int yw, int zx, int zw $SCALARS) {
  __shared__ __align__(16) $ACC As[$BK][$BM];
  __shared__ __align__(16) $ACC Bs[$BK][$BN];
  const int tid = (int)threadIdx.x;
  const int g = (int)blockIdx.z / splits, split = (int)blockIdx.z - g * splits;
  const int m0 = (int)blockIdx.y * $BM, p0 = (int)blockIdx.x * $BN;
  const int kend = min(K, (split + 1) * step), C = K / ($KD * $KH * $KW);
  const int tx = tid % ($BN / $TN), ty = tid / ($BN / $TN);
  constexpr int NA = $BM * $BK / $THREADS, NB = $BN * $BK / $THREADS;
  constexpr int TAPS = $KD * $KH * $KW;
  constexpr int PIXELS = $XROW ? NB : 1;
  // Where the pixels of this thread's elements of B begin.
  int base[PIXELS], z0[PIXELS], y0[PIXELS], x0[PIXELS];
#pragma unroll
  for (int j = 0; j < PIXELS; j++) {
    int p = p0 + ($XROW ? tid / $BK + j * ($THREADS / $BK) : tid % $BN);
    bool valid = p < P;
    if (!valid) p = 0;
    int r = p / OW, ox = p - r * OW, q = r / OH, oy = r - q * OH, n = q / OD, oz = q - n * OD;
    base[j] = valid ? n * xn + g * xg : -1;
    z0[j] = $TRANSPOSED ? oz + pd : oz * sd - pd;
    y0[j] = $TRANSPOSED ? oy + ph : oy * sh - ph;
    x0[j] = $TRANSPOSED ? ox + pw : ox * sw - pw;
  }
  $ACC ra[NA], rb[NB];
  auto load = [&](int k0) {
#pragma unroll
    for (int j = 0; j < NA; j++) {
      int k = k0 + ($WROW ? tid % $BK : tid / $BM + j * ($THREADS / $BM));
      int m = m0 + ($WROW ? tid / $BK + j * ($THREADS / $BK) : tid % $BM);
      ra[j] = 0;
      if (k < kend && m < M) {
        auto v = widen(w[g * wg + m * wo + k * wk]);
        ra[j] = $WVALUE;
      }
    }
#pragma unroll
    for (int j = 0; j < NB; j++) {
      const int at = $XROW ? j : 0;
      int k = k0 + ($XROW ? tid % $BK : tid / $BN + j * ($THREADS / $BN));
      rb[j] = 0;
      if (k < kend && base[at] >= 0) {
        int c = $TAPS_FIRST ? k % C : k / TAPS, t = $TAPS_FIRST ? k / C : k % TAPS;
        int kz = t / ($KH * $KW), ky = t / $KW % $KH, kx = t % $KW;
        int iz, iy, ix;
        bool inside = true;
        if ($TRANSPOSED) {
          iz = z0[at] - kz * dd, iy = y0[at] - ky * dh, ix = x0[at] - kx * dw;
          inside = iz >= 0 && iy >= 0 && ix >= 0 && iz % sd == 0 && iy % sh == 0 && ix % sw == 0;
          iz /= sd, iy /= sh, ix /= sw;
        } else {
          iz = z0[at] + kz * dd, iy = y0[at] + ky * dh, ix = x0[at] + kx * dw;
        }
        if (!$CHECKED || (inside && (unsigned)iz < (unsigned)D && (unsigned)iy < (unsigned)H &&
                          (unsigned)ix < (unsigned)W)) {
          auto v = widen(x[base[at] + (c / $XL) * xc + c % $XL + iz * xd + iy * xh + ix * xw]);
          rb[j] = $XVALUE;
        }
      }
    }
  };
  $ACC sums[$TM][$TN];
#pragma unroll
  for (int i = 0; i < $TM; i++)
#pragma unroll
    for (int j = 0; j < $TN; j++) sums[i][j] = 0;
  load(split * step);
  for (int k0 = split * step; k0 < kend; k0 += $BK) {
#pragma unroll
    for (int j = 0; j < NA; j++) {
      int k = $WROW ? tid % $BK : tid / $BM + j * ($THREADS / $BM);
      int m = $WROW ? tid / $BK + j * ($THREADS / $BK) : tid % $BM;
      As[k][m] = ra[j];
    }
#pragma unroll
    for (int j = 0; j < NB; j++) {
      int k = $XROW ? tid % $BK : tid / $BN + j * ($THREADS / $BN);
      int p = $XROW ? tid / $BK + j * ($THREADS / $BK) : tid % $BN;
      Bs[k][p] = rb[j];
    }
    __syncthreads();
    if (k0 + $BK < kend) load(k0 + $BK);
#pragma unroll
    for (int k = 0; k < $BK; k++) {
      $ACC a[$TM], b[$TN];
#pragma unroll
      for (int i = 0; i < $TM; i += 4)
        *reinterpret_cast<four<$ACC> *>(&a[i]) =
            *reinterpret_cast<const four<$ACC> *>(&As[k][i * ($BM / $TM) + ty * 4]);
#pragma unroll
      for (int j = 0; j < $TN; j += 4)
        *reinterpret_cast<four<$ACC> *>(&b[j]) =
            *reinterpret_cast<const four<$ACC> *>(&Bs[k][j * ($BN / $TN) + tx * 4]);
#pragma unroll
      for (int i = 0; i < $TM; i++)
#pragma unroll
        for (int j = 0; j < $TN; j++) sums[i][j] = $GEMM_MAC;
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < $TN; j++) {
    int px = p0 + (j / 4) * 4 * ($BN / $TN) + tx * 4 + j % 4;
    if (px >= P) continue;
    int r = px / OW, ox = px - r * OW, q = r / OH, oy = r - q * OH, n = q / OD, oz = q - n * OD;
    int pixel = n * yn + g * yg + oz * yd + oy * yh + ox * yw;
#pragma unroll
    for (int i = 0; i < $TM; i++) {
      int m = m0 + (i / 4) * 4 * ($BM / $TM) + ty * 4 + i % 4;
      if (m >= M) continue;
      $ACC acc = sums[i][j];
      $STORE
    }
  }
}
