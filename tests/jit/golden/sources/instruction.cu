__global__ void k(float* x) {
  asm volatile("nonsense.f32 %0;" : "=f"(x[0]));
}
