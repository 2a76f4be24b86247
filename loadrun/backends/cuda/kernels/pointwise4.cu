extern "C" __global__ void __launch_bounds__(256)
$NAME($POINTERS $YT *__restrict__ y, int items $SCALARS) {
  int q = (int)(blockIdx.x * 256 + threadIdx.x);
  if (q >= items) return;
  $LOADS
  four<$YT> out;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    $BODY
    narrow(out.v[e], $RESULT);
  }
  reinterpret_cast<four<$YT> *>(y)[q] = out;
}
