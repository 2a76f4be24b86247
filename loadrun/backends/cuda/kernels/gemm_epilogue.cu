// What follows a product of matrices by the library.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const float *__restrict__ x, $EXTRAS $YT *__restrict__ y, int items, int M, int N $SCALARS) {
  int o = (int)(blockIdx.x * 256 + threadIdx.x);
  if (o >= items) return;
  float acc = x[o];
  int px = o % N, ch = o / N % M;
  $BODY
  narrow(y[o], $RESULT);
}
