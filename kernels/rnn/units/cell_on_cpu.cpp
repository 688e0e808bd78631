// A unit of compilation, for the reason in calls.cpp.
#include "rnn/cell_step/cpu/gemm.cpp"
#include "rnn/cell_step/cpu/pointwise.cpp"
