// Greedy suppression of boxes (n, 4), best first; a block a batch. `dropped` is scratch.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ boxes, int *__restrict__ found, int *__restrict__ sizes,
      u8 *__restrict__ dropped, int batch, int n, int limit, float threshold) {
  __shared__ int take;
  const float *from = boxes + (i64)blockIdx.x * n * 4;
  u8 *gone = dropped + (i64)blockIdx.x * n;
  int *to = found + (i64)blockIdx.x * limit;
  int tid = (int)threadIdx.x, kept = 0;
  for (int j = tid; j < n; j += 256) gone[j] = 0;
  __syncthreads();
  for (int i = 0; i < n && kept < limit; i++) {
    if (tid == 0) {
      take = !gone[i];
      if (take) to[kept] = i;
    }
    __syncthreads();
    if (take) {
      kept++;
      float x0 = from[i * 4], y0 = from[i * 4 + 1], x1 = from[i * 4 + 2], y1 = from[i * 4 + 3];
      float area = (x1 - x0) * (y1 - y0);
      for (int j = i + 1 + tid; j < n; j += 256) {
        const float *b = from + j * 4;
        float w = $MIN(x1, b[2]) - $MAX(x0, b[0]), h = $MIN(y1, b[3]) - $MAX(y0, b[1]);
        float inner = $MAX(w, 0.f) * $MAX(h, 0.f);
        if (inner > (area + (b[2] - b[0]) * (b[3] - b[1]) - inner) * threshold) gone[j] = 1;
      }
    }
    __syncthreads();
  }
  int last = 0;
  if (kept > 0) last = to[kept - 1];
  __syncthreads();
  for (int j = kept + tid; j < limit; j += 256) to[j] = kept ? last : 0;
  if (tid == 0) sizes[blockIdx.x] = kept;
}
