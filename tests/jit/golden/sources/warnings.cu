__global__ void k(float* x) { int unused; x[0] = 1; }
int f() { return y; }
