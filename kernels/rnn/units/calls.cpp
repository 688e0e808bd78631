// A unit of compilation: its files read the same headers, and torch's alone take more than a second.
#include "core/products/library.cpp"
#include "rnn/cell_step/kernels.cpp"
#include "rnn/cell_step/operators.cpp"
#include "rnn/sequence/all_steps/products.cpp"
#include "rnn/sequence/all_steps/weight_gradients.cpp"
#include "rnn/sequence/calls/backward.cpp"
#include "rnn/sequence/calls/forward.cpp"
#include "rnn/sequence/calls/layer.cpp"
