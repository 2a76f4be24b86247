// Inverses of matrices (n, n) in float64: Gauss and Jordan's elimination with the largest pivot of
// each column; a block a matrix. `work` is scratch, a matrix and the unit matrix beside it.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, $XT *__restrict__ y, double *work, int *__restrict__ status,
      int slot, int items, int n) {
  __shared__ double best[256];
  __shared__ int where[256];
  int tid = (int)threadIdx.x, wide = 2 * n;
  i64 base = (i64)blockIdx.x * n * n;
  double *m = work + 2 * base;
  for (int k = tid; k < n * wide; k += 256) {
    int r = k / wide, c = k - r * wide;
    m[k] = c < n ? (double)widen(x[base + r * n + c]) : c - n == r ? 1.0 : 0.0;
  }
  __syncthreads();
  for (int p = 0; p < n; p++) {
    double top = -1.0;
    int row = p;
    for (int r = p + tid; r < n; r += 256) {
      double v = fabs(m[(i64)r * wide + p]);
      if (v > top || (v != v && top == top)) top = v, row = r;
    }
    best[tid] = top;
    where[tid] = row;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (tid < half && (best[tid + half] > best[tid] || best[tid + half] != best[tid + half])) {
        best[tid] = best[tid + half];
        where[tid] = where[tid + half];
      }
    }
    __syncthreads();
    row = where[0];
    double pivot = m[(i64)row * wide + p];
    if (pivot == 0.0 && tid == 0) *status = slot;
    __syncthreads();
    for (int c = p + tid; c < wide; c += 256) {
      double held = m[(i64)row * wide + c] / pivot;
      m[(i64)row * wide + c] = m[(i64)p * wide + c];
      m[(i64)p * wide + c] = held;
    }
    __syncthreads();
    // Column p becomes that of the unit matrix and is not read again, so it is left as it is.
    for (int k = tid; k < n * (wide - p - 1); k += 256) {
      int r = k / (wide - p - 1), c = p + 1 + k - r * (wide - p - 1);
      if (r != p) m[(i64)r * wide + c] -= m[(i64)r * wide + p] * m[(i64)p * wide + c];
    }
    __syncthreads();
  }
  for (int k = tid; k < n * n; k += 256) {
    int r = k / n, c = k - r * n;
    narrow(y[base + k], (float)m[(i64)r * wide + n + c]);
  }
}
