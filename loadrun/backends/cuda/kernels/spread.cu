// An axis mixed by lists of elements and weights: element o is the sum of weight[k] * element
// index[k], k from begin[o] to begin[o + 1]. Tensors are (outer, axis, inner).
extern "C" __global__ void __launch_bounds__(256)
$NAME(const $XT *__restrict__ x, const int *__restrict__ begin, const int *__restrict__ index,
      const float *__restrict__ weight, $YT *__restrict__ y, int items, int n, int m, int inner) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int q = i / inner, e = i - q * inner, a = q / m, o = q - a * m;
  const $XT *from = x + a * n * inner + e;
  double total = 0;
  for (int k = begin[o]; k < begin[o + 1]; k++)
    total += (double)weight[k] * (double)widen(from[index[k] * inner]);
  narrow(y[i], (float)total);
}
