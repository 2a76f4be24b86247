// Convolution as a product of matrices that is never written out (as gemm.cu), of operands that are
// multiplied as they are stored. Slices of the inner dimension come into shared memory $STAGES deep:
// by copies that go on meanwhile where 16 bytes lie next to each other, else by registers. A slice is
// of one place of the window where channels fill it; else `places` tells channel and place of each k.
extern "C" __global__ void __launch_bounds__($THREADS, 1)
$NAME(const $XT *__restrict__ x, const $WT *__restrict__ w, $PLACES $EXTRAS $YT *__restrict__ y,
      int M, int P, int K, int splits, int step, int D, int H, int W, int OD, int OH, int OW,
      int sd, int sh, int sw, int pd, int ph, int pw, int dd, int dh, int dw,
      int xn, int xg, int xc, int xd, int xh, int xw, int wg, int wo, int wk,
      int yn, int yg, int yc, int yd, int yh, int yw, int zx, int zw $SCALARS) {
  constexpr int CH = $CH, E = 16 / (int)sizeof($XT), BK = CH * E, STAGES = $STAGES;
  constexpr int NA = $BM * CH / $THREADS, NB = $BN * CH / $THREADS;
  // Elements of x that are next to each other along the sum, or else pixels (one of them is 1).
  constexpr int TAPS = $KD * $KH * $KW, RUN = $RUN, SPAN = $SPAN;
  constexpr bool XCOPY = RUN == E, WCOPY = $WCOPY, UNIFORM = $UNIFORM;
  constexpr int PIXELS = XCOPY ? NB : 1;
  __shared__ chunk<u32> As[STAGES][$BM * CH];
  __shared__ chunk<u32> Bs[STAGES][$BN * CH];
  const int tid = (int)threadIdx.x;
  const int g = (int)blockIdx.z / splits, split = (int)blockIdx.z - g * splits;
  const int m0 = (int)blockIdx.y * $BM, p0 = (int)blockIdx.x * $BN;
  const int k1 = split * step, kend = min(K, k1 + step), C = K / TAPS;
  // Copied rows are taken by neighbours along the row, others by neighbours across rows.
  auto wrow = [&](int j) { return WCOPY ? tid / CH + j * ($THREADS / CH) : tid % $BM; };
  auto wchunk = [&](int j) { return WCOPY ? tid % CH : tid / $BM + j * ($THREADS / $BM); };
  constexpr int ACROSS = $BN / SPAN;
  auto xrow = [&](int j) { return XCOPY ? tid / CH + j * ($THREADS / CH) : tid % ACROSS * SPAN; };
  auto xchunk = [&](int j) { return XCOPY ? tid % CH : tid / ACROSS + j * ($THREADS / ACROSS); };
  int base[PIXELS], z0[PIXELS], y0[PIXELS], x0[PIXELS], at[PIXELS];
#pragma unroll
  for (int j = 0; j < PIXELS; j++) {
    int p = p0 + xrow(j);
    bool valid = p < P;
    if (!valid) p = 0;
    int r = p / OW, ox = p - r * OW, q = r / OH, oy = r - q * OH;
    int n = $FLAT ? q : q / OD, oz = $FLAT ? 0 : q - n * OD;
    base[j] = valid ? n * xn + g * xg : -1;
    z0[j] = $TRANSPOSED ? oz + pd : oz * sd - pd;
    y0[j] = $TRANSPOSED ? oy + ph : oy * sh - ph;
    x0[j] = $TRANSPOSED ? ox + pw : ox * sw - pw;
  }
  // Where the element of a place of the window lies, without its channel; -1: outside.
  auto locate = [&](int j, int kz, int ky, int kx) {
    int iz, iy, ix;
    bool inside = base[j] >= 0;
    if ($TRANSPOSED) {
      iz = z0[j] - kz * dd, iy = y0[j] - ky * dh, ix = x0[j] - kx * dw;
      inside &= iy >= 0 && ix >= 0 && iy % sh == 0 && ix % sw == 0;
      if (!$FLAT) inside &= iz >= 0 && iz % sd == 0;
      iz /= sd, iy /= sh, ix /= sw;
    } else {
      iz = z0[j] + kz * dd, iy = y0[j] + ky * dh, ix = x0[j] + kx * dw;
    }
    if ($CHECKED) {
      if (!$FLAT) inside &= (unsigned)iz < (unsigned)D;
      inside &= (unsigned)iy < (unsigned)H && (unsigned)ix < (unsigned)W;
    }
    return inside ? base[j] + ($FLAT ? 0 : iz * xd) + iy * xh + ix * xw : -1;
  };
  auto tapped = [&](int j, int t) { return locate(j, t / ($KH * $KW), t / $KW % $KH, t % $KW); };
  auto channel = [&](int c) { return $XL == 1 ? c * xc : c / $XL * xc + c % $XL; };
  // The same with the channel, for one place in the sum.
  auto lookup = [&](int j, int k, int &where, int &from) {
    $FIND
  };
  // What padding holds: the code that stands for zero.
  $XT padding = {};
  if ($ZX) reinterpret_cast<u8 &>(padding) = (u8)zx;

  int tap = TAPS == 1 ? 0 : k1 / C, c0 = TAPS == 1 ? k1 : k1 - tap * C;
  if (UNIFORM)
#pragma unroll
    for (int j = 0; j < PIXELS; j++) at[j] = tapped(j, tap);

  chunk<$WT> heldw[WCOPY ? 1 : NA];
  chunk<$XT> heldx[XCOPY ? 1 : NB];
  auto fetch = [&](int k0, int stage) {
#pragma unroll
    for (int j = 0; j < NA; j++) {
      int m = m0 + wrow(j), k = k0 + wchunk(j) * E;
      const $WT *from = w + (g * wg + m * wo);
      if (WCOPY) {
        bool valid = m < M && k < kend;
        copy_chunk(&As[stage][place<CH>(wrow(j), wchunk(j))], valid ? from + k : w, valid);
      } else {
#pragma unroll
        for (int e = 0; e < E; e++) {
          heldw[WCOPY ? 0 : j].v[e] = $WT{};
          if (m < M && k + e < kend) heldw[WCOPY ? 0 : j].v[e] = $PREPARE(from[(k + e) * wk]);
        }
      }
    }
    if (UNIFORM && TAPS > 1 && c0 == C) {
      c0 = 0, tap++;
#pragma unroll
      for (int j = 0; j < PIXELS; j++) at[j] = tapped(j, tap);
    }
#pragma unroll
    for (int j = 0; j < NB / (XCOPY ? 1 : SPAN); j++) {
      const int pixel = XCOPY ? j : 0, k = k0 + xchunk(j) * E;
      int where = -1, from = 0;
      if (UNIFORM) {
        where = at[pixel], from = where + channel(c0 + xchunk(j) * E);
      } else if (XCOPY) {
        lookup(pixel, k, where, from);
      }
      if (XCOPY) {
        chunk<u32> *to = &Bs[stage][place<CH>(xrow(j), xchunk(j))];
        bool real = $WHOLE || k < kend, valid = where >= 0 && real;
        if ($ZX && where < 0 && real) {
          chunk<$XT> filler;
#pragma unroll
          for (int e = 0; e < E; e++) filler.v[e] = padding;
          reinterpret_cast<chunk<$XT> &>(*to) = filler;
        } else {
          copy_chunk(to, valid ? x + from : x, valid);
        }
        continue;
      }
#pragma unroll
      for (int e = 0; e < E; e += RUN) {
        bool real = $WHOLE || k + e < kend;
        if (!UNIFORM) lookup(pixel, k + e, where, from);
        run<$XT, RUN * SPAN> found;
#pragma unroll
        for (int i = 0; i < RUN * SPAN; i++) found.v[i] = $ZX && real ? padding : $XT{};
        if (where >= 0 && real)
          found = *reinterpret_cast<const run<$XT, RUN * SPAN> *>(
              x + from + (UNIFORM ? channel(e) : 0));
#pragma unroll
        for (int i = 0; i < RUN * SPAN; i++)
          heldx[XCOPY ? 0 : j * SPAN + i % SPAN].v[e + i / SPAN] = $PREPARE(found.v[i]);
      }
    }
    c0 += BK;
  };
  // What came by registers.
  auto store = [&](int stage) {
    if (!WCOPY)
#pragma unroll
      for (int j = 0; j < NA; j++)
        reinterpret_cast<chunk<$WT> &>(As[stage][place<CH>(wrow(j), wchunk(j))]) =
            heldw[WCOPY ? 0 : j];
    if (!XCOPY)
#pragma unroll
      for (int j = 0; j < NB; j++)
        reinterpret_cast<chunk<$XT> &>(
            Bs[stage][place<CH>(xrow(0) + j % SPAN, xchunk(j / SPAN))]) = heldx[XCOPY ? 0 : j];
  };

  $ENGINE engine(tid);
  const int slices = (kend - k1 + BK - 1) / BK;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < slices) fetch(k1 + s * BK, s), store(s);
    end_group();
  }
  int now = 0, next = STAGES - 1;
  for (int s = 0; s < slices; s++) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    const bool more = s + STAGES - 1 < slices;
    if (more) fetch(k1 + (s + STAGES - 1) * BK, next);
    engine.step(As[now], Bs[now]);
    if (more) store(next);
    end_group();
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  wait_groups<0>();
  engine.finish(zx, zw, max(kend - k1, 0));
#pragma unroll
  for (int j = 0; j < engine.COLUMNS; j++) {
    int px = p0 + engine.column(j);
    if (px >= P) continue;
    int pixel = g * yg;
    if ($DENSE) {
      int image = OD * OH * OW, n = $SINGLE ? 0 : px / image;
      pixel += n * yn + (px - n * image) * yw;
    } else {
      int r = px / OW, ox = px - r * OW, q = r / OH, oy = r - q * OH;
      int n = $FLAT ? q : q / OD, oz = $FLAT ? 0 : q - n * OD;
      pixel += n * yn + oz * yd + oy * yh + ox * yw;
    }
#pragma unroll
    for (int i = 0; i < engine.ROWS; i++) {
      int m = m0 + engine.row(i);
      if (m >= M) continue;
      $ACC acc = engine.sum(i, j);
      $STORE
    }
  }
}
