// Positions in a tensor as coordinates, an axis a row; zeros behind the count.
extern "C" __global__ void __launch_bounds__(256)
$NAME(const int *__restrict__ positions, const int *__restrict__ total,
      const int *__restrict__ sizes, const int *__restrict__ strides, int *__restrict__ y,
      int items, int n) {
  int i = (int)(blockIdx.x * 256 + threadIdx.x);
  if (i >= items) return;
  int axis = i / n, j = i - axis * n;
  y[i] = j < *total ? positions[j] / strides[axis] % sizes[axis] : 0;
}
